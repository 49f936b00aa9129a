package browser

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/ulisse-gp/ulisse/internal/client"
	"github.com/ulisse-gp/ulisse/internal/server"
	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// chromium returns the browser, or skips the test.
func chromium(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a browser and a cluster: not in short tests")
	}
	for _, name := range []string{os.Getenv("ULISSE_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("there is no Chromium: install it, or name it in ULISSE_CHROMIUM")
	return ""
}

// cluster is a coordinator with a worker, and a client of it.
type cluster struct {
	t   *testing.T
	url string
	*client.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler) // which goes after the cluster has ended
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	ready := make(chan [2]string, 1)
	run := func(name string, f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	c := server.Coordinator{ID: "c1", Dir: filepath.Join(dir, "c1"), Listen: "127.0.0.1:0", Raft: "127.0.0.1:0", HTTP: "127.0.0.1:0", BootstrapExpect: 1,
		Logger: quiet, Ready: func(grpc, _, http string) { ready <- [2]string{grpc, http} }}
	run("coordinator", c.Run)
	var at [2]string
	select {
	case at = <-ready:
	case <-time.After(time.Minute):
		t.Fatal("the coordinator is not ready")
	}
	w := server.Worker{ID: "w1", Dir: filepath.Join(dir, "w1"), Coordinators: []string{at[0]}, Listen: "127.0.0.1:0", Cores: 1, DrainTime: time.Second, Logger: quiet}
	run("worker", w.Run)
	cl, err := client.Dial(client.Config{Addresses: []string{at[0]}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) { // a page that asks before there is a leader has something to complain about
		if _, err := cl.Jobs(t.Context(), &pb.ListJobsRequest{}); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	return &cluster{t: t, url: "http://" + at[1], Client: cl}
}

const spec = `
name: %s
data: {synthetic: {n: 150, d: 2, sigma: 1, tau: [0.5], lambda: 0.1}}
sampler: {method: fisher, chains: 4, warmup: 20, draws: 100000, checkpoint: 10}
solver: {tolerance: 1e-6}
stop: {rhat: 1.001, ess: 1e9, max_draws: 1000000, max_time: 30m}
`

// submit submits a job that goes on until it is told not to.
func (c *cluster) submit(name string) string {
	c.t.Helper()
	j, err := c.Submit(c.t.Context(), &pb.SubmitRequest{Spec: fmt.Sprintf(spec, name)})
	if err != nil {
		c.t.Fatal(err)
	}
	return j.Id
}

// tab is a page in the browser; what its console says wrong fails the test.
type tab struct {
	t   *testing.T
	ctx context.Context
	url string
	mu  sync.Mutex
	bad []string
}

// profile returns a folder of the browser. Its processes may write to it for a moment after
// they were told to end.
func profile(t *testing.T) string {
	dir, err := os.MkdirTemp("", "profile-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("the browser does not let go of %s", dir)
	})
	return dir
}

func open(t *testing.T, browser, url string) *tab {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(profile(t)),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.NoFirstRun)
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx, url: url}
	wrong := func(format string, args ...any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.bad = append(b.bad, fmt.Sprintf(format, args...))
	}
	chromedp.ListenTarget(ctx, func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			wrong("exception: %s", e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				wrong("console: %s", e.Type)
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError {
				wrong("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
			}
		}
	})
	return b
}

// do carries out actions.
func (b *tab) do(what string, a ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, a...); err != nil {
		var text string
		_ = chromedp.Run(b.ctx, chromedp.Evaluate(`document.body ? document.body.innerText.slice(0, 1500) : ""`, &text))
		b.t.Fatalf("%s: %v\n%s", what, err, text)
	}
}

// holds waits until an expression is true on the page.
func (b *tab) holds(what, expression string) {
	b.t.Helper()
	b.do(what, chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(time.Minute)))
}

// clean checks that nothing went wrong on the pages so far.
func (b *tab) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.bad {
		b.t.Errorf("the browser complains: %s", m)
	}
}

// audit returns what on the page somebody with a keyboard or a screen reader
// would stumble over.
const audit = `(() => {
  const wrong = [], say = (what, e) => wrong.push(what + ": " + (e ? e.outerHTML.slice(0, 120) : ""));
  if (!document.documentElement.lang) say("no language");
  if (!document.title) say("no title");
  if (document.querySelectorAll("h1").length !== 1) say("not one h1");
  for (const m of ["header", "main", "nav", "footer"]) if (!document.querySelector(m)) say("no landmark " + m);
  document.querySelectorAll("img").forEach(e => { if (!e.hasAttribute("alt")) say("a picture without words", e); });
  document.querySelectorAll("img").forEach(e => { if (e.complete && !e.naturalWidth) say("a picture that is broken", e); });
  document.querySelectorAll("input:not([type=hidden]), select, textarea").forEach(e => { if (!e.labels.length && !e.ariaLabel) say("a field without a label", e); });
  document.querySelectorAll("a, button").forEach(e => { if (!(e.innerText.trim() || e.ariaLabel)) say("a link without words", e); });
  document.querySelectorAll("nav, section, [role=region]").forEach(e => {
    const by = e.getAttribute("aria-labelledby");
    if (!e.ariaLabel && !(by && document.getElementById(by))) say("a region without a name", e);
  });
  document.querySelectorAll("progress").forEach(e => { if (!e.ariaLabel && !e.labels.length) say("progress of nothing", e); });
  document.querySelectorAll("th").forEach(e => { if (!e.scope) say("a head of nothing", e); });
  const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
  ids.filter((id, i) => ids.indexOf(id) !== i).forEach(id => say("an id twice, " + id));
  let last = 1;
  document.querySelectorAll("h1, h2, h3").forEach(e => { const n = +e.tagName[1]; if (n > last + 1) say("a heading left out", e); last = n; });
  if (document.documentElement.scrollWidth > innerWidth + 1) say("the page is wider than the window");
  const rgb = c => (c.match(/[\d.]+/g) || []).map(Number), part = v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  document.querySelectorAll("a, p, td, th, dt, dd, li, label, button, h1, h2, span, time").forEach(e => {
    if (!e.innerText.trim() || e.matches(".skip")) return;
    const a = light(rgb(getComputedStyle(e).color)), b = light(ground(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) say("too little contrast, " + ratio.toFixed(2), e);
  });
  return wrong;
})()`

// audit checks a page for everybody, in both colour schemes and on a phone.
func (b *tab) audit(path string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 380} {
			var wrong []string
			b.do("looking at "+path, chromedp.EmulateViewport(width, 900),
				emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
				chromedp.Evaluate(audit, &wrong))
			if len(wrong) > 0 {
				b.t.Errorf("%s, %s, %d wide:\n%s", path, scheme, width, strings.Join(wrong, "\n"))
			}
		}
	}
	b.do("a wide window", chromedp.EmulateViewport(1280, 900))
}

// press clicks on an element. The page moves while a job does, so that a click at the place where
// the element was a moment ago may miss it.
func press(selector string) chromedp.Action {
	return chromedp.Tasks{chromedp.WaitVisible(selector, chromedp.ByQuery), chromedp.Evaluate(fmt.Sprintf("document.querySelector(%q).click()", selector), nil)}
}

const live = `document.getElementById("live").textContent === "live"`

// A user looks at all pages, sees a job move, and pauses, resumes, extends and
// cancels it.
func TestDashboard(t *testing.T) {
	browser := chromium(t)
	c := newCluster(t)
	b := open(t, browser, c.url)
	b.do("opening the jobs", chromedp.Navigate(c.url+"/"), chromedp.WaitVisible("h1"))
	b.holds("the stream", live)
	id := c.submit("moving")
	b.holds("the job appears by itself", fmt.Sprintf(`document.querySelector('#jobs a[href="/jobs/%s"]')?.textContent === "moving"`, id))
	b.audit("/jobs")

	b.do("opening the job", press(fmt.Sprintf(`a[href="/jobs/%s"]`, id)), chromedp.WaitVisible("#progress"))
	b.holds("plots of draws appear by themselves", `document.querySelector('img[data-plot*="trace.svg"]')?.naturalWidth > 0`)
	var was string
	b.do("reading the progress", chromedp.Evaluate(`document.getElementById("progress").innerText`, &was))
	b.holds("the progress moves", fmt.Sprintf(`document.getElementById("progress").innerText !== %q`, was))
	b.holds("the plots move", `/v=/.test(document.querySelector('img[data-plot*="trace.svg"]').src)`)
	b.holds("the summary comes", `document.querySelector("#summary table") !== null`)
	b.holds("the events come", `/chain 1 on w1/.test(document.getElementById("events").innerText)`)
	b.holds("the log comes", `/gradient iter=/.test(document.getElementById("log").innerText)`)
	b.do("looking at all plots", chromedp.Evaluate(`document.querySelectorAll("img").forEach(i => i.scrollIntoView())`, nil))
	b.holds("all plots are there", `[...document.querySelectorAll("img[data-plot]")].length === 9 && [...document.images].every(i => i.complete && i.naturalWidth > 0)`)

	b.holds("the gauges are judged", `document.querySelector("#progress .cards .good, #progress .cards .poor") !== null`)
	b.do("choosing a parameter", press(".choose summary"), press(`.choose input[value="0"]`), press(".choose button"),
		chromedp.WaitReady(`img[data-plot*="trace.svg?param=1"]`, chromedp.ByQuery))
	b.holds("what was chosen", `location.search === "?param=1&param=2" && document.querySelector('img[data-plot*="trace.svg?param=1"]')?.naturalWidth > 0`)
	b.holds("files to download", `["csv", "html"].every(f => document.querySelector('#files a[href*="format=' + f + '"]'))`)
	var fetched []string
	b.do("downloading", chromedp.Evaluate(`(async () => { const out = []; for (const a of [...document.querySelectorAll("#files a")]) { const r = await fetch(a.href), n = (await r.blob()).size; out.push(r.ok && n > 50 ? "" : a.href + " " + r.status + " " + n); } return out; })()`,
		&fetched, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if wrong := strings.Join(fetched, ""); wrong != "" || len(fetched) != 6 {
		t.Errorf("of %d files did not come: %s", len(fetched), wrong)
	}

	for _, a := range []struct{ action, then string }{
		{"pause", "paused"}, {"resume", "sampling"}, {"extend", "sampling"}, {"cancel", "cancelled"},
	} {
		b.do(a.action, press(fmt.Sprintf(`a[href$="/%s"]`, a.action)), chromedp.WaitVisible("form[method=post]"))
		if a.action == "extend" {
			b.do("how many", chromedp.SetValue("input[name=draws]", "777", chromedp.ByQuery))
		}
		b.audit("/jobs/ID/" + a.action)
		b.do("confirming "+a.action, press("form button"), chromedp.WaitVisible("#progress"))
		b.holds(a.action+" acts", fmt.Sprintf(`document.querySelector("#state .badge").textContent === %q`, a.then))
	}
	b.audit("/jobs/ID")
	j, err := c.Get(t.Context(), id)
	if err != nil || j.State != pb.JobState_JOB_STATE_CANCELLED || j.Progress.Draws != 100777 {
		t.Errorf("the job is %v with %d draws wanted, %v", j.GetState(), j.GetProgress().GetDraws(), err)
	}
	second := c.submit("other")
	b.do("looking again", chromedp.Navigate(c.url+"/jobs/"+id), chromedp.WaitVisible("#progress"))
	b.do("comparing", chromedp.SetValue(`select[name=job]`, second, chromedp.ByQuery), press(`form[action="/compare"] button`), chromedp.WaitVisible(`a[href="/jobs/`+second+`"]`, chromedp.ByQuery))
	b.holds("both jobs", `["moving", "other", "sigma"].every(w => document.querySelector("main").innerText.includes(w))`)
	b.audit("/compare")
	b.do("the list on a phone", chromedp.EmulateViewport(380, 900), chromedp.Navigate(c.url+"/jobs"), chromedp.WaitVisible("table"))
	b.holds("what one looks for first is in sight", `[...document.querySelectorAll("thead th")].filter(e => /R-hat|ESS$/.test(e.innerText)).every(e => e.getBoundingClientRect().right <= innerWidth)`)
	b.do("back to the job", chromedp.EmulateViewport(1280, 900), chromedp.Navigate(c.url+"/jobs/"+id), chromedp.WaitVisible("#progress"))
	b.do("opening the log", press(`a[href$="/logs"]`), chromedp.WaitVisible("pre"))
	b.audit("/jobs/ID/logs")

	b.do("opening the workers", press(`a[href="/workers"]`), chromedp.WaitVisible("#workers table"))
	b.holds("the worker", `document.getElementById("workers").innerText.includes("w1") && document.querySelector('img[data-plot*="presence"]').naturalWidth > 0`)
	b.audit("/workers")
	b.do("opening the cluster", press(`a[href="/cluster"]`), chromedp.WaitVisible("#cluster table"))
	b.holds("the coordinator", `document.getElementById("cluster").innerText.includes("c1")`)
	b.audit("/cluster")

	b.clean()
}

// write puts a text into the editor, whose last character is typed.
func (b *tab) write(text string) {
	b.t.Helper()
	b.do("writing", chromedp.SetValue("#spec", text, chromedp.ByQuery), chromedp.SendKeys("#spec", "\n", chromedp.ByQuery))
}

// A user submits a job from the page, with a mistake that is told and mended, predicts a row from it, writes a
// note and tags on it, finds it by these, and repeats it.
func TestSubmitFromThePage(t *testing.T) {
	browser := chromium(t)
	c := newCluster(t)
	table := filepath.Join(t.TempDir(), "table.csv")
	var rows strings.Builder
	rows.WriteString("size,age,rent\n")
	for i := range 40 {
		fmt.Fprintf(&rows, "%d,%d,%g\n", i, i*i%7, 3*math.Sin(float64(i)/5)+float64(i%3))
	}
	if err := os.WriteFile(table, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, browser, c.url)
	b.do("opening the editor", chromedp.Navigate(c.url+"/jobs"), press(`a[href="/submit"]`), chromedp.WaitVisible("#spec"))
	b.write("name: paged\ndata: {path: table.csv, target: rent}\nsampler: {method: fischer}\n")
	b.holds("the mistake is told with its line and field", `/line 3, column 19: sampler.method.*did you mean "fisher"/.test(document.getElementById("mistakes").innerText)`)
	b.holds("its line stands out", `[...document.querySelectorAll("#lines .poor")].map(e => e.textContent).join() === "3"`)
	b.do("looking at it", press("#mistakes button"))
	b.holds("the line is marked", `(() => { const s = document.getElementById("spec"); return s.value.slice(s.selectionStart, s.selectionEnd) === "sampler: {method: fischer}"; })()`)
	b.audit("/submit")
	b.write("name: paged\ndata: {path: table.csv, target: rent}\nsampler: {chains: 2, warmup: 20, draws: 20, checkpoint: 10}\nsolver: {tolerance: 1e-3}\nstop: {ess: 1e9, max_draws: 20}\n")
	b.holds("it is mended", `/No mistakes/.test(document.getElementById("mistakes").innerText)`)
	b.do("uploading a table", chromedp.SetUploadFiles("#upload input", []string{table}, chromedp.ByQuery))
	b.holds("it is chosen", `/table.csv is uploaded/.test(document.getElementById("upload").innerText) && /^table.csv/.test(document.querySelector("select[name=data]").selectedOptions[0].text)`)
	b.do("submitting", press("form.editor button.button"), chromedp.WaitVisible("#progress"))
	b.holds("it comes to its end", `document.querySelector("#state .badge").textContent === "unconverged"`)

	b.do("opening the predictions", press(`a[href$="/predict"]`), chromedp.WaitVisible(`input[name=x1]`, chromedp.ByQuery))
	b.do("predicting", chromedp.SetValue("input[name=x0]", "12.5", chromedp.ByQuery), press("form button"), chromedp.WaitVisible("#answer"))
	b.holds("a prediction", `[...document.querySelectorAll("#answer dd")].length === 4 && [...document.querySelectorAll("#answer dd")].every(e => /^−?\d/.test(e.textContent))`)
	b.audit("/jobs/ID/predict")
	b.do("drawing a curve", press("#curve"), chromedp.WaitVisible("#curve-title"))
	b.holds("a curve", `[...document.querySelectorAll("figure img")].length === 1 && document.querySelector("figure img").naturalWidth > 100`)
	b.do("opening the note", press(`main a.button.plain`), press(`a[href$="/annotate"]`), chromedp.WaitVisible("#note"))
	b.audit("/jobs/ID/annotate")
	b.do("writing it", chromedp.SendKeys("#note", "rents <b>of old houses", chromedp.ByQuery), chromedp.SendKeys("input[name=tags]", "paper slow", chromedp.ByQuery), press("form button"),
		chromedp.WaitVisible("#progress"))
	b.holds("the note and the tags", `document.querySelector("#note .note")?.textContent === "rents <b>of old houses" && [...document.querySelectorAll("#note .tag")].map(e => e.textContent).join() === "paper,slow"`)
	b.do("looking for a tag", press("#note .tag"), chromedp.WaitVisible("#jobs .tag"))
	b.holds("its jobs", `location.search === "?tag=paper" && document.querySelectorAll("#jobs tbody tr").length === 1`)
	b.audit("/jobs?tag=paper")
	b.do("repeating", press(`#jobs th a`), press(`a[href^="/submit?job="]`), chromedp.WaitVisible("#spec"))
	b.holds("with its specification and its data", `/name: paged/.test(document.getElementById("spec").value) && document.querySelector("select[name=data]").value.length === 64`)
	b.clean()
}

// Of classes without an order a row has the probability of each, and without the noise their functions; a curve is drawn for each class, with
// its name.
func TestClassesOnThePage(t *testing.T) {
	browser := chromium(t)
	c := newCluster(t)
	table := filepath.Join(t.TempDir(), "trees.csv")
	var rows strings.Builder
	rows.WriteString("height,tree\n")
	for i := range 30 {
		fmt.Fprintf(&rows, "%d,%s\n", i, []string{"ash", "oak", "elm"}[(i/7+i%2)%3])
	}
	if err := os.WriteFile(table, []byte(rows.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	b := open(t, browser, c.url)
	b.do("opening the editor", chromedp.Navigate(c.url+"/submit"), chromedp.WaitVisible("#spec"))
	b.write("name: trees\ndata: {path: trees.csv, target: tree}\nmodel: {likelihood: categorical}\nsampler: {chains: 2, warmup: 10, draws: 10, checkpoint: 10}\nstop: {ess: 1e9, max_draws: 10}\n")
	b.holds("there is no mistake", `/No mistakes/.test(document.getElementById("mistakes").innerText)`)
	b.do("uploading a table", chromedp.SetUploadFiles("#upload input", []string{table}, chromedp.ByQuery))
	b.holds("it is chosen", `/trees.csv is uploaded/.test(document.getElementById("upload").innerText)`)
	b.do("submitting", press("form.editor button.button"), chromedp.WaitVisible("#progress"))
	b.holds("it comes to its end", `document.querySelector("#state .badge").textContent === "unconverged"`)
	b.do("opening the predictions", press(`a[href$="/predict"]`), chromedp.WaitVisible(`input[name=x0]`, chromedp.ByQuery))
	b.do("predicting", chromedp.SetValue("input[name=x0]", "12.5", chromedp.ByQuery), press("form button"), chromedp.WaitVisible("#answer"))
	b.holds("the probabilities of the classes, and nothing else", `[...document.querySelectorAll("#answer dt")].map(e => e.textContent).join() === "P(ash),P(elm),P(oak)" &&
		Math.abs([...document.querySelectorAll("#answer dd")].reduce((sum, e) => sum + Number(e.textContent), 0) - 1) < 0.01`)
	b.audit("/jobs/ID/predict")
	b.do("drawing a curve", press("#curve"), chromedp.WaitVisible("#curve-title"))
	b.holds("a curve for each class", `(() => { const img = [...document.querySelectorAll("figure img")], svg = atob(img[0].src.split(",")[1]);
		return img.length === 1 && img[0].naturalWidth > 100 && ["ash", "elm", "oak"].every(name => svg.includes(">" + name + "<")); })()`)
	b.audit("/jobs/ID/curve")
	b.do("without the noise", press("input[name=latent]"), press("form button"), chromedp.WaitVisible("#answer"))
	b.holds("the functions, too", `[...document.querySelectorAll("#answer dt")].map(e => e.textContent).join() === "P(ash),P(elm),P(oak),f(ash),f(elm),f(oak)" && /±/.test(document.getElementById("answer").innerText)`)
	b.clean()
}

// Everything is there without a script, but that it stands still.
func TestWithoutScripts(t *testing.T) {
	browser := chromium(t)
	c := newCluster(t)
	id := c.submit("still")
	b := open(t, browser, c.url)
	b.do("no scripts", emulation.SetScriptExecutionDisabled(true), chromedp.Navigate(c.url+"/jobs/"+id+"/cancel"), chromedp.WaitVisible("form[method=post]"))
	b.do("cancelling", press("form button"), chromedp.WaitVisible("#progress"))
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		j, err := c.Get(t.Context(), id)
		if err == nil && j.State == pb.JobState_JOB_STATE_CANCELLED {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the job is %v, %v", j.GetState(), err)
		}
	}
}
