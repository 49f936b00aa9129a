// Package browser tests the dashboard in a real browser, headless Chromium, on a
// cluster in this process. Where Chromium is missing the tests are skipped.
package browser
