package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// TestFaults: clients write while nodes are cut off, killed, restarted and made
// to hand over, at random with a fixed seed. In the end every replica holds the
// same chain, and every acknowledged command is in it once.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ nodes, faults int }{{3, 8}, {5, 6}} {
		t.Run(fmt.Sprint(c.nodes, " nodes"), func(t *testing.T) {
			t.Parallel()
			if testing.Short() && c.nodes > 3 {
				t.Skip("short")
			}
			tc := newCluster(t, c.nodes, func(cfg *Config) {
				cfg.TrailingLogs, cfg.SnapshotThreshold, cfg.SnapshotInterval = 16, 64, testHeartbeat
			})
			rng := rand.New(rand.NewPCG(1, uint64(c.nodes)))

			var mu sync.RWMutex // held by faults that open or close nodes
			ctx, cancel := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			var acknowledged sync.Map
			var total atomic.Int64
			for k := range 3 {
				clients.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						cmd := fmt.Sprintf("client%d-%d", k, i)
						mu.RLock()
						for _, m := range tc.live() {
							if !m.IsLeader() {
								continue
							}
							try, stop := context.WithTimeout(ctx, time.Second)
							if _, _, err := m.Apply(try, []byte(cmd)); err == nil {
								acknowledged.Store(cmd, true)
								total.Add(1)
							}
							stop()
							break
						}
						mu.RUnlock()
						sleep(ctx, time.Millisecond)
					}
				})
			}
			for range c.faults {
				m := tc.m[tc.ids[rng.IntN(len(tc.ids))]]
				switch rng.IntN(3) {
				case 0:
					island := []string{m.cfg.ID}
					if c.nodes == 5 {
						island = append(island, tc.ids[rng.IntN(len(tc.ids))])
					}
					tc.net.cut(island)
					sleep(t.Context(), 2*testHeartbeat)
					tc.net.cut()
				case 1:
					mu.Lock()
					tc.stop(m)
					mu.Unlock()
					sleep(t.Context(), testHeartbeat)
					mu.Lock()
					tc.start(m)
					mu.Unlock()
				case 2:
					// It may fail, between leaders: that is a fault too.
					_ = tc.leader().Transfer(t.Context(), "")
				}
				before := total.Load()
				eventually(t, "progress", func() bool { return total.Load() > before })
			}
			cancel()
			clients.Wait()
			count := tc.agree()
			missing := 0
			err := tc.leader().View(func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte("chain"))
				acknowledged.Range(func(cmd, _ any) bool {
					if b.Get([]byte("cmd-"+cmd.(string))) == nil {
						missing++
					}
					return true
				})
				return nil
			})
			if err != nil || missing > 0 {
				t.Errorf("%d of %d acknowledged commands are missing (%v)", missing, total.Load(), err)
			}
			if total.Load() > int64(count) {
				t.Errorf("%d acknowledged, %d in the chain", total.Load(), count)
			}
			t.Logf("%d commands, %d acknowledged", count, total.Load())
		})
	}
}
