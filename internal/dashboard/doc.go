// Package dashboard is what a browser shows of a cluster: pages, made here from
// templates, that bring themselves up to date, and plots (package plots) as SVG.
// It knows the cluster through its RPCs alone, as any client does.
//
// # Pages
//
// Every page is whole without a script. The script, a page of it, listens to the
// page's stream of server-sent events and puts what has changed in its place:
// pieces of HTML, named by the id of the element that they fill, and the
// versions of plots, which it then fetches. So a page opened late, or after its
// coordinator was away, shows the same as one that was open all the time.
//
// # Feeds
//
// All who look at a job share one feed: a follower of its state and its draws.
// It holds a bounded number of draws, evenly spaced if there are more, and ends
// when nobody has looked for a while. Streams to browsers have no queue: each
// sends what is new when the browser has taken what was before, and a browser
// that takes nothing is cut off. So memory is bounded by the number of jobs that
// are looked at (maxFeeds), the pictures kept (maxPictures) and the streams
// (maxStreams).
//
// # Who may
//
// Config.Protect wraps all handlers: it is where users sign in. What it adds to
// a request's context goes with the RPCs that are made for that request; before
// a shared feed is shown the job is asked for on the viewer's behalf. Actions are
// forms. They are accepted from the dashboard's own pages only: browsers say
// where a request comes from, and each form carries a token that has to equal
// that of a cookie.
package dashboard
