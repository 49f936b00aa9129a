package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/bbolt"
)

// registers is a machine of registers: "k=v" sets one.
type registers struct{}

func (registers) Init(tx *bbolt.Tx) error {
	_, err := tx.CreateBucketIfNotExists([]byte("registers"))
	return err
}

func (registers) Apply(tx *bbolt.Tx, _ uint64, cmd []byte) any {
	k, v, ok := strings.Cut(string(cmd), "=")
	if !ok {
		return errors.New("no assignment")
	}
	if err := tx.Bucket([]byte("registers")).Put([]byte(k), []byte(v)); err != nil {
		return err
	}
	return nil
}

// access is a write, or a read, of a register.
type access struct {
	write      bool
	key, value string
}

// registerModel is what porcupine holds a history against, register by register.
var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (out [][]porcupine.Operation) {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			by[o.Input.(access).key] = append(by[o.Input.(access).key], o)
		}
		for _, p := range by {
			out = append(out, p)
		}
		return out
	},
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		if a := input.(access); a.write {
			return true, a.value
		}
		return output == state, state
	},
}

// client reads and writes registers through whoever is there, and notes when it asked
// for what, and what came of it.
type client struct {
	id    int
	rng   *rand.Rand
	now   func() int64
	done  []porcupine.Operation
	reads int
}

// write proposes a value at a node. An outcome that is not known may come at any time.
func (c *client) write(ctx context.Context, m *member, a access) {
	op := porcupine.Operation{ClientId: c.id, Input: a, Call: c.now()}
	_, _, err := m.Apply(ctx, []byte(a.key+"="+a.value))
	switch {
	case err == nil:
		op.Return = c.now()
	case errors.Is(err, ErrNotLeader), errors.Is(err, ErrClosed):
		return
	default:
		op.Return = math.MaxInt64
	}
	c.done = append(c.done, op)
}

// read reads a node's copy, as consistently as coordinators do: at an index that the
// leader has told.
func (c *client) read(ctx context.Context, m *member, live []*member, a access) {
	op := porcupine.Operation{ClientId: c.id, Input: a, Call: c.now()}
	_, err := m.ReadIndex(ctx)
	for _, o := range live {
		if errors.Is(err, ErrNotLeader) && o != m && o.cfg.ID == m.Leader().ID {
			var index uint64
			if index, err = o.ReadIndex(ctx); err == nil {
				err = m.WaitApplied(ctx, index)
			}
			break
		}
	}
	value := ""
	if err == nil {
		err = m.View(func(tx *bbolt.Tx) error {
			value = string(tx.Bucket([]byte("registers")).Get([]byte(a.key)))
			return nil
		})
	}
	if err == nil {
		op.Output, op.Return = value, c.now()
		c.done, c.reads = append(c.done, op), c.reads+1
	}
}

// Reads and writes are linearizable while nodes are cut off, killed and started again,
// and leaders hand over.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short")
	}
	tc := newCluster(t, 3, func(cfg *Config) {
		cfg.Machine = registers{}
		cfg.TrailingLogs, cfg.SnapshotThreshold, cfg.SnapshotInterval = 16, 64, testHeartbeat
	})
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.RWMutex // held by faults that open or close nodes
	var wg sync.WaitGroup
	var clients []*client
	for k := range 4 {
		c := &client{id: k, rng: rand.New(rand.NewPCG(7, uint64(k))), now: func() int64 { return int64(time.Since(began)) }}
		clients = append(clients, c)
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				mu.RLock()
				live := tc.live()
				m := live[c.rng.IntN(len(live))]
				try, stop := context.WithTimeout(ctx, 2*testHeartbeat)
				a := access{write: c.rng.IntN(2) == 0, key: fmt.Sprint("k", c.rng.IntN(3))}
				if a.write {
					a.value = fmt.Sprintf("%d-%d", k, i)
					c.write(try, m, a)
				} else {
					c.read(try, m, live, a)
				}
				stop()
				mu.RUnlock()
				sleep(ctx, time.Duration(c.rng.IntN(8))*time.Millisecond)
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	const faults = 10
	for range faults {
		m := tc.m[tc.ids[rng.IntN(len(tc.ids))]]
		switch rng.IntN(4) {
		case 0:
			m = tc.leader()
			fallthrough
		case 1:
			tc.net.cut([]string{m.cfg.ID})
			sleep(ctx, time.Duration(rng.IntN(4))*testHeartbeat)
			tc.net.cut()
		case 2:
			mu.Lock()
			tc.stop(m)
			mu.Unlock()
			sleep(ctx, testHeartbeat)
			mu.Lock()
			tc.start(m)
			mu.Unlock()
		case 3:
			// It may fail, between leaders: that is a fault too.
			_ = tc.leader().Transfer(ctx, "")
		}
		sleep(ctx, time.Duration(rng.IntN(1000))*time.Millisecond)
	}
	cancel()
	wg.Wait()
	var history []porcupine.Operation
	reads := 0
	for _, c := range clients {
		history, reads = append(history, c.done...), reads+c.reads
	}
	result := porcupine.CheckOperationsTimeout(registerModel, history, patience)
	t.Logf("%d faults, %d operations, %d of them reads: %v", faults, len(history), reads, result)
	if result == porcupine.Illegal {
		t.Error("not linearizable")
	}
	if len(history) < 100 || reads < 20 {
		t.Error("too few operations to tell")
	}
}

// A read of what was overwritten before it began is found.
func TestStaleReadIsFound(t *testing.T) {
	at := func(call int64, a access, output string) porcupine.Operation {
		return porcupine.Operation{ClientId: int(call), Input: a, Output: output, Call: call, Return: call + 5}
	}
	first, second := at(0, access{true, "k", "1"}, ""), at(10, access{true, "k", "2"}, "")
	for value, want := range map[string]bool{"2": true, "1": false, "": false} {
		if got := porcupine.CheckOperations(registerModel, []porcupine.Operation{first, second, at(20, access{key: "k"}, value)}); got != want {
			t.Errorf("a read of %q: %v", value, got)
		}
	}
}
