package predictor

import "github.com/windtunnel/windtunnel/core/machine"

// Samples lie in buckets, so that what is rare is not pushed out by what is
// frequent: by how many requests waited, how full the KV cache was, and how much
// of the prompt was in it.
const (
	queueBuckets, cacheBuckets, prefixBuckets = 5, 20, 4
	buckets                                   = queueBuckets * cacheBuckets * prefixBuckets
)

func queueBucket(waiting int64) int {
	for i, most := range [...]int64{0, 2, 5, 10} {
		if waiting <= most {
			return i
		}
	}
	return queueBuckets - 1
}

func cacheBucket(kv float64) int { return max(0, min(int(kv*cacheBuckets), cacheBuckets-1)) }

func bucketOf(f *Features) int {
	return (queueBucket(f.Waiting)*cacheBuckets+cacheBucket(f.KV))*prefixBuckets + prefixBucket(f.Prefix)
}

// ring keeps the newest samples.
type ring struct {
	list []Sample
	next int // the oldest, once it is full
}

func (r *ring) add(s Sample, most int) {
	if len(r.list) < most {
		r.list = append(r.list, s)
		return
	}
	r.list[r.next] = s
	r.next = (r.next + 1) % len(r.list)
}

// each yields the samples, the oldest first.
func (r *ring) each(yield func(s *Sample)) {
	for i := range r.list {
		yield(&r.list[(r.next+i)%len(r.list)])
	}
}

// store is the samples of one target.
type store struct {
	train [buckets]ring
	test  ring
}

func (s *store) add(x Sample, o *Options, test bool) {
	if test {
		s.test.add(x, o.MaxTest)
		return
	}
	s.train[bucketOf(&x.Features)].add(x, o.BucketSize)
}

func (s *store) len() (n int) {
	for i := range s.train {
		n += len(s.train[i].list)
	}
	return n
}

// split counts the samples of requests that need not have waited, and of others.
func (s *store) split() (unqueued, queued int) {
	for i := range s.train {
		if n := len(s.train[i].list); i < buckets/queueBuckets {
			unqueued += n
		} else {
			queued += n
		}
	}
	return unqueued, queued
}

func (s *store) each(yield func(s *Sample)) {
	for i := range s.train {
		s.train[i].each(yield)
	}
}

// forTest reports whether a sample is kept for testing. The real trainer draws by a hash
// that differs from run to run; here a seed repeats it.
func (m *Machine) forTest() bool {
	m.seen++
	d := machine.NewDraw(m.o.Seed, "predictor", "test split", m.seen)
	return d.Float64() < m.o.TestRatio
}
