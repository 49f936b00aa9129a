// Package auth decides who calls and what they may do.
//
// # Who
//
// A caller is a user or a node. A user shows a bearer token: one of the
// cluster's own, whose hash is in the replicated state, or one of an OpenID
// Connect provider. A node shows a certificate with its role; where there is no
// TLS, a coordinator shows the key that coordinators share, and a worker a token
// of that role. Where nobody is asked (--auth none), whoever calls is an
// administrator, and a node where it calls as one.
//
// # What
//
// Each method has a rule, as its option in proto/: the role that it takes, which
// nodes may call it, and the job that a request names, which has to be in a
// namespace of the caller's. Guard's interceptors go by it; what has no rule is
// refused. A job of another namespace is answered as one that does not exist.
//
// # Calls that are passed on
//
// A coordinator passes a call on with the user's own token, which the leader
// checks again: nothing is believed of a user that another node says. The
// metadata by which coordinators mark calls among themselves are taken off the
// calls of everybody else.
package auth
