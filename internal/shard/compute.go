package shard

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// compute answers units until the driver is gone or has been silent for long.
func (v *serving) compute(received <-chan error) error {
	idle := time.NewTimer(v.conf.Idle)
	defer idle.Stop()
	for {
		if r := v.next(); r != nil {
			if err := v.answer(r); err != nil {
				return err
			}
			continue
		}
		select {
		case <-v.changed:
		case err := <-received:
			return err
		case <-v.stream.Context().Done():
			return v.stream.Context().Err()
		case <-idle.C:
			silent := time.Since(time.Unix(0, v.heard.Load()))
			if silent >= v.conf.Idle {
				return status.Errorf(codes.Unavailable, "the session was silent for %v", v.conf.Idle)
			}
			idle.Reset(v.conf.Idle - silent)
		}
	}
}

// next takes the next unit to be computed.
func (v *serving) next() *request {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.queue) == 0 {
		return nil
	}
	v.current, v.queue = v.queue[0], v.queue[1:]
	return v.current
}

// done notes that the product is not used any more by the current unit.
func (v *serving) done() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.current = nil
	v.quiet.Broadcast()
}

// answer computes a unit and sends the answer. A unit that was cancelled has
// none.
func (v *serving) answer(r *request) error {
	defer r.cancel()
	p := r.product
	product, version := p.ID, p.State.Version
	missing := r.wait()
	ok := missing == nil && v.work(r)
	v.done()
	if missing != nil && r.ctx.Err() == nil {
		m := &pb.TilesMissing{Unit: r.id, Product: product, Address: missing.address, Reason: missing.err.Error(), Points: missing.points}
		return v.stream.SendMsg(&frame{head: &pb.TilesResponse{Response: &pb.TilesResponse_Missing{Missing: m}}})
	}
	if !ok {
		return v.broken
	}
	out := v.out
	for at := 0; at < len(out) && r.ctx.Err() == nil; {
		k := min(blockLen, len(out)-at)
		data, crc := encode(out[at : at+k])
		f := &frame{data: data, head: &pb.TilesResponse{Response: &pb.TilesResponse_Answer{Answer: &pb.TilesAnswer{
			Unit: r.id, Product: product, Version: version, Offset: uint64(at), Total: uint64(len(out)), Crc32C: crc}}}}
		v.conf.Meter.sent.Add(f.size())
		err := v.stream.SendMsg(f)
		data.Free()
		if err != nil {
			return err
		}
		at += k
	}
	return nil
}

// wait waits for what a unit needs, and returns what does not come.
func (r *request) wait() *arrival {
	for _, a := range r.waits {
		select {
		case <-a.done:
			if a.err != nil {
				return a
			}
		case <-r.ctx.Done():
			return &arrival{err: r.ctx.Err()}
		}
	}
	return nil
}

// work computes a unit into out, with a core of its own and those that are free.
func (v *serving) work(r *request) bool {
	if v.conf.Budget.Acquire(r.ctx) != nil {
		return false
	}
	defer v.conf.Budget.Release()
	began := time.Now()
	if !v.result(r) {
		return false
	}
	v.conf.Meter.computed(r.product.pairs(r.Unit), time.Since(began), true)
	if v.conf.Traced != nil && len(r.product.Trace) > 0 {
		v.conf.Traced(r.product.Trace, began, r.Unit)
	}
	return true
}

// result sets out to the answer of a unit.
func (v *serving) result(r *request) bool {
	p := r.product
	switch {
	case r.add:
		v.out = r.waits[0].sums
		spoilAnswer(p, v.out)
		return true
	case p.Exchange != nil:
		return v.keep(r)
	}
	if n := p.Size(r.Unit); cap(v.out) < n {
		v.out = make([]float64, n)
	}
	v.out = v.out[:p.Size(r.Unit)]
	if err := p.compute(r.ctx, v.op, r.Unit, v.out); err != nil {
		if r.ctx.Err() == nil {
			v.broken = invalid("unit %d: %v", r.id, err)
		}
		return false
	}
	if p.Kind == Hold {
		v.nowWhole(p.Chunk)
		v.out[1] = float64(v.room())
	}
	spoilAnswer(p, v.out)
	return true
}

// keep computes the sums of a part, which are kept, and sets out to their checksums.
func (v *serving) keep(r *request) bool {
	p, x := r.product, r.product.Exchange
	sums, err := p.part(r.ctx, v.op, r.Lo, v.kept.space(len(p.V)*x.rows(r.Lo, -1)))
	if err != nil {
		return false
	}
	spoilAnswer(p, sums)
	v.kept.keep(p, r.Lo, sums)
	v.out = x.checksums(r.Lo, len(p.V), sums)
	return true
}
