// Command load submits jobs to a cluster of three coordinators on this machine
// at a steady rate, while many watch, workers that do nothing are connected, and
// clients misbehave: some send too much, some begin and fall silent. Afterwards
// every job that was acknowledged has to be there, once.
//
//	go run ./bench/load
//
// It tells how long submissions took, how far the clients fell behind the rate,
// and the resident memory of the coordinators.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	log.SetFlags(0)
	l := load{}
	flag.IntVar(&l.rate, "rate", 200, "submissions a second")
	flag.DurationVar(&l.time, "time", time.Minute, "for so long")
	flag.IntVar(&l.watchers, "watchers", 500, "open watches")
	flag.IntVar(&l.workers, "workers", 200, "workers that are connected and do nothing")
	flag.IntVar(&l.hostile, "hostile", 20, "clients that send too much, or begin and fall silent")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &l); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, l *load) error {
	dir, err := os.MkdirTemp("", "ulisse-load")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := build(ctx, dir)
	if err != nil {
		return err
	}
	r, err := l.run(ctx, binary, dir)
	if err != nil {
		return err
	}
	fmt.Print(r)
	return r.verdict()
}

// build builds ulisse.
func build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "ulisse")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/ulisse-gp/ulisse/cmd/ulisse")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building ulisse: %w: %s", err, out)
	}
	return binary, nil
}
