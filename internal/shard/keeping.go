package shard

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ulisse-gp/ulisse/proto/ulisse/v1"
)

// keyLen is how many bytes a group's key has.
const keyLen = 16

// defaultPatience is how long another worker has to send something.
const defaultPatience = 10 * time.Second

// keeping is what a session has of a product for other members of the group to fetch: rows of its vectors, and the
// sums of parts.
type keeping struct {
	mu      sync.Mutex
	product uint64 // 0 if there is none
	layout  *layout
	columns int
	width   int
	rows    map[int]region // of the points that have come
	sums    map[int][]float64
	spare   [][]float64   // for the sums of the next product
	bytes   int64         // that sums take
	changed chan struct{} // closed when there is more, or less
	ended   bool
}

// begin begins a product, or ends the one before it if that is nil. One that is begun again goes on.
func (k *keeping) begin(p *Product) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p != nil && p.ID == k.product {
		return
	}
	for _, s := range k.sums {
		k.spare = append(k.spare, s)
	}
	k.product, k.rows, k.sums, k.bytes = 0, map[int]region{}, map[int][]float64{}, 0
	if p == nil {
		k.spare = nil
	} else {
		k.product, k.layout, k.columns, k.width = p.ID, p.Exchange.layout, len(p.V), p.Kind.width()
	}
	k.wake()
}

// wake makes those look again who wait for something. The caller holds mu.
func (k *keeping) wake() {
	if k.changed != nil {
		close(k.changed)
	}
	k.changed = make(chan struct{})
}

// end ends all.
func (k *keeping) end() {
	k.begin(nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
	k.wake()
}

// arrived notes that the driver has sent the rows of a point.
func (k *keeping) arrived(point int, r region) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rows != nil {
		k.rows[point] = r
		k.wake()
	}
}

// reserve makes sure that the session may keep the sums of a part, so many numbers.
func (k *keeping) reserve(n int, most int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bytes+8*int64(n) > most {
		return status.Errorf(codes.ResourceExhausted, "sums of more than the %d bytes that a session has on this worker", most)
	}
	k.bytes += 8 * int64(n)
	return nil
}

// space returns room for sums that was used before, if there is some.
func (k *keeping) space(n int) []float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, s := range k.spare {
		if cap(s) >= n {
			k.spare[i] = k.spare[len(k.spare)-1]
			k.spare = k.spare[:len(k.spare)-1]
			return s
		}
	}
	return nil
}

// keep keeps the sums of a part.
func (k *keeping) keep(p *Product, part int, sums []float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.product == p.ID {
		k.sums[part] = sums
	}
}

// stream returns those of the sums of a part that are of a point.
func (k *keeping) stream(product uint64, part, point int) ([]float64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	sums, ok := k.sums[part]
	if k.product != product || !ok || k.layout.points[part]&(1<<point) == 0 {
		return nil, status.Errorf(codes.NotFound, "the sums of part %d of product %d are not here", part, product)
	}
	return k.layout.stream(part, point, k.columns, sums), nil
}

// vectors returns the rows of a point, encoded. It waits until they are there.
func (k *keeping) vectors(ctx context.Context, product uint64, point int) (chunks, error) {
	for {
		k.mu.Lock()
		if k.ended || k.product > product {
			k.mu.Unlock()
			return nil, status.Errorf(codes.NotFound, "product %d is over", product)
		}
		if r, ok := k.rows[point]; ok && k.product == product {
			defer k.mu.Unlock()
			factor := make([]float64, len(r.columns))
			for c := range factor {
				factor[c] = 1 // the driver has multiplied them
			}
			return r.encode(k.width, factor), nil
		}
		if k.changed == nil {
			k.wake()
		}
		changed := k.changed
		k.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// register makes a session the one of a key.
func (s *Server) register(key string, v *serving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys[key] = v
	close(s.registered)
	s.registered = make(chan struct{})
}

// session returns the session of a key. It waits for one if the driver may be about to begin its product.
func (s *Server) session(ctx context.Context, key string, wait bool) (*serving, error) {
	for {
		s.mu.Lock()
		v, registered := s.keys[key], s.registered
		s.mu.Unlock()
		if v != nil {
			return v, nil
		}
		if !wait {
			return nil, status.Error(codes.NotFound, "there is no session of this key")
		}
		select {
		case <-registered:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// unregister forgets a session.
func (s *Server) unregister(key string, v *serving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] == v {
		delete(s.keys, key)
	}
}

// Fetch gives another worker what a session has.
func (s *Server) Fetch(stream grpc.BidiStreamingServer[pb.TilesRequest, pb.TilesResponse]) error {
	return s.give(stream)
}

func (s *Server) give(stream messages) error {
	asked := &pb.TilesRequest{}
	f := &frame{head: asked}
	defer f.close()
	if err := stream.RecvMsg(f); err == io.EOF {
		return invalid("the call ended before it said what to fetch")
	} else if err != nil {
		return err
	}
	m := asked.GetFetch()
	if m == nil || m.Point < 0 || m.Point >= 64 || m.Product == 0 {
		return invalid("not what a member may fetch: %v", m)
	}
	v, err := s.session(stream.Context(), string(m.Key), m.Part < 0)
	if err != nil {
		return err
	}
	all, total, err := v.kept.encoded(stream.Context(), m)
	if err != nil {
		return err
	}
	defer all.free()
	start := uint64(0)
	for i, c := range all {
		if i == 0 {
			start = c.offset
		}
		f := &frame{data: c.data, head: &pb.TilesResponse{Response: &pb.TilesResponse_Answer{Answer: &pb.TilesAnswer{
			Product: m.Product, Offset: c.offset - start, Total: total, Crc32C: c.crc}}}}
		s.conf.Meter.sent.Add(f.size())
		if err := stream.SendMsg(f); err != nil {
			return err
		}
	}
	return nil
}

// encoded returns what is asked for, and how many numbers that are.
func (k *keeping) encoded(ctx context.Context, m *pb.TilesFetch) (all chunks, total uint64, err error) {
	width := 8
	if m.Part >= 0 {
		var x []float64
		if x, err = k.stream(m.Product, int(m.Part), int(m.Point)); err == nil {
			all = region{columns: [][]float64{x}, hi: len(x)}.encode(8, nil)
		}
	} else if all, err = k.vectors(ctx, m.Product, int(m.Point)); err == nil {
		width = k.width
	}
	for _, c := range all {
		total += uint64(c.data.Len() / width)
	}
	return all, total, err
}

// fetch fills a region with what another worker has.
func (p *Pool) fetch(ctx context.Context, address string, m *pb.TilesFetch, width int, r region, meter *Meter) error {
	conn, err := p.conn(address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewTilesClient(conn).Fetch(ctx, grpc.CallContentSubtype(contentSubtype))
	if err != nil {
		return err
	}
	if err := stream.SendMsg(&frame{head: &pb.TilesRequest{Request: &pb.TilesRequest_Fetch{Fetch: m}}}); err != nil && err != io.EOF {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	f := &frame{}
	defer f.close()
	for got := 0; got < r.len(); {
		x := &pb.TilesResponse{}
		f.head = x
		if err := stream.RecvMsg(f); err == io.EOF {
			return fmt.Errorf("it sent %d numbers, not %d", got, r.len())
		} else if err != nil {
			return err
		}
		meter.received.Add(f.size() + int64(f.body.Remaining()))
		a, k := x.GetAnswer(), f.numbers(width)
		if a == nil || a.Product != m.Product || a.Offset != uint64(got) || a.Total != uint64(r.len()) || k == 0 || k > r.len()-got {
			return fmt.Errorf("it sent numbers [%d,+%d) of %d for product %d, not [%d,…) of %d for %d", a.GetOffset(), k, a.GetTotal(), a.GetProduct(), got, r.len(), m.Product)
		}
		if err := f.read(width, a.Crc32C, r.slices(got, k)); err != nil {
			return err
		}
		got += k
	}
	return nil
}

// arrival is something that a session waits for.
type arrival struct {
	done    chan struct{} // closed when it has come, or will not come
	address string        // who should have it
	points  []int32       // whose vectors it is
	err     error
	sums    []float64 // of a point that is added up
}

// fetch has the vectors of a point fetched.
func (v *serving) fetch(p *Product, point int, address string) *arrival {
	a := &arrival{done: make(chan struct{}), address: address, points: []int32{int32(point)}}
	ctx := v.fetchCtx
	v.fetching.Go(func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(ctx, v.conf.Patience)
		defer cancel()
		a.err = v.from(ctx, address, &pb.TilesFetch{Key: p.Exchange.key, Product: p.ID, Part: -1, Point: int64(point)}, p.Kind.width(), p.regions()[point])
	})
	return a
}

// from fetches something from another worker.
func (v *serving) from(ctx context.Context, address string, m *pb.TilesFetch, width int, r region) error {
	if v.conf.Peers == nil {
		return status.Error(codes.Unimplemented, "this worker fetches nothing from others")
	}
	return v.conf.Peers.fetch(ctx, address, m, width, r, v.conf.Meter)
}

// fetchAhead is how many parts of a point are fetched side by side.
const fetchAhead = 8

// addUp has the parts of a point fetched and added up.
func (v *serving) addUp(ctx context.Context, p *Product, point int, sources []*pb.TilesSource) *arrival {
	a := &arrival{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(ctx, v.conf.Patience)
		defer cancel()
		sum := newAdder(p.Exchange.layout, point, len(p.V), 0, nil)
		for len(sources) > 0 && a.err == nil {
			now := sources[:min(fetchAhead, len(sources))]
			sources = sources[len(now):]
			a.address, a.err = v.addSome(ctx, p, sum, now)
		}
		a.sums = sum.answer()
	}()
	return a
}

// addSome adds the next parts. If it fails it returns who did not give one.
func (v *serving) addSome(ctx context.Context, p *Product, sum *adder, sources []*pb.TilesSource) (address string, err error) {
	streams, errs := make([][]float64, len(sources)), make([]error, len(sources))
	var group errgroup.Group
	for i, s := range sources {
		part := sum.parts[sum.point][sum.added+i]
		group.Go(func() error {
			streams[i], errs[i] = v.partStream(ctx, p, part, sum.point, s)
			return nil
		})
	}
	_ = group.Wait()
	for i, s := range sources {
		if errs[i] != nil {
			return s.Address, errs[i]
		}
		sum.add(streams[i])
	}
	return "", nil
}

// partStream returns those sums of a part that are of a point, as they were told of.
func (v *serving) partStream(ctx context.Context, p *Product, part, point int, s *pb.TilesSource) (x []float64, err error) {
	if s.Address == "" {
		if x, err = v.kept.stream(p.ID, part, point); err != nil {
			return nil, err
		}
	} else {
		x = make([]float64, len(p.V)*p.Exchange.rows(part, point))
		m := &pb.TilesFetch{Key: p.Exchange.key, Product: p.ID, Part: int64(part), Point: int64(point)}
		if err := v.from(ctx, s.Address, m, 8, region{columns: [][]float64{x}, hi: len(x)}); err != nil {
			return nil, err
		}
	}
	if crc := checksum(x); crc != s.Crc32C {
		return nil, fmt.Errorf("the sums of part %d have checksum %08x, not %08x", part, crc, s.Crc32C)
	}
	return x, nil
}
