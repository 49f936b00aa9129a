package main

import (
	"context"
	"errors"
	"flag"
)

// latency is what it takes to measure how long a cluster takes to answer.
type latency struct{ job string }

func (l *latency) flags() { flag.StringVar(&l.job, "job", "", "measure a job's predictions on a cluster") }

func (l *latency) measure(context.Context) error { return errors.New("x") }
