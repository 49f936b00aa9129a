// Package joblog keeps the log lines of jobs in files, outside the replicated
// state: a convenience, which may have gaps. Whoever leads takes the lines, keeps
// them (Store), and hands them on to the other coordinators as far as those can be
// reached (Copier). A reader puts together what several coordinators have (Merge).
package joblog
