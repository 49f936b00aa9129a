package shard

import (
	"sync/atomic"
	"time"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// Meter counts what a process does for its own chains and for those of others.
// All methods are safe for concurrent use.
type Meter struct {
	pairs, tiles, retries, hedges, wrong atomic.Int64
	sent, received, busy                 atomic.Int64
}

// computed counts a unit: the elements of K that it ranged over, and how long
// it took. For others says that another worker asked for it.
func (m *Meter) computed(pairs float64, took time.Duration, forOthers bool) {
	m.pairs.Add(int64(pairs))
	m.busy.Add(int64(took))
	if forOthers {
		m.tiles.Add(1)
	}
}

// Wrong returns how many units of others were found to be computed wrongly.
func (m *Meter) Wrong() int64 { return m.wrong.Load() }

// Load returns the counts in the fields that this package knows about: pairs
// and busy seconds of computation, units computed for others; of the units
// asked for, those given out again after a failure and those given out twice;
// and bytes of tile traffic in both directions.
func (m *Meter) Load() *pb.Load {
	return &pb.Load{
		Pairs:         float64(m.pairs.Load()),
		BusySeconds:   time.Duration(m.busy.Load()).Seconds(),
		Tiles:         m.tiles.Load(),
		TileRetries:   m.retries.Load(),
		Hedges:        m.hedges.Load(),
		BytesSent:     m.sent.Load(),
		BytesReceived: m.received.Load(),
	}
}
