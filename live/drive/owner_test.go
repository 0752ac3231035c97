package drive

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windtunnel/windtunnel/core/machine"
)

// sleeper owns a clock that gets one more strike at every wake-up.
type sleeper struct {
	clock
	fx    strikes
	now   func() machine.Time
	woken chan struct{}
	done  chan struct{}
	news  []strike
	heard []string
	left  int
	last  machine.Time // the machine is over after this strike
}

func (s *sleeper) Woken() <-chan struct{} { return s.woken }
func (s *sleeper) Done() <-chan struct{}  { return s.done }
func (s *sleeper) Over() bool             { return slices.Contains(s.heard, fmt.Sprint(s.last)) }

func (s *sleeper) Left() {
	s.left++
	s.news = append(s.news, strike{s.last})
	s.woken <- struct{}{}
}

func (s *sleeper) Message() strike {
	m := s.news[0]
	s.news = s.news[1:]
	return m
}

func (s *sleeper) Carry(i int) {
	at := s.fx.List[i].at
	s.heard = append(s.heard, fmt.Sprint(at))
	time.Sleep(time.Second) // a slow client
	if at == second {
		s.Input(s.now(), strike{2 * second}, &s.fx)
	}
}

// An owner carries out due effects, their consequences and messages by the machine's clock, and Left is called once
// when the client leaves.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sleeper{woken: make(chan struct{}, 1), done: make(chan struct{}), last: 100 * second,
			now: Since(time.Now())}
		s.Input(0, strike{0}, &s.fx)
		s.Input(0, strike{second / 2}, &s.fx)
		over := make(chan struct{})
		go func() {
			Run[strike, *strikes](s, &s.fx, s.now, s)
			close(over)
		}()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		s.news = append(s.news, strike{1 * second})
		s.woken <- struct{}{}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		close(s.done)
		<-over
		if want := []string{"0s", "0.5s", "1s", "2s", "100s"}; !slices.Equal(s.heard, want) || s.left != 1 {
			t.Errorf("heard %q, want %q; told %d times that nobody waits", s.heard, want, s.left)
		}
		if at := s.now(); at != 101*second {
			t.Errorf("over at %v", at)
		}
	})
}
