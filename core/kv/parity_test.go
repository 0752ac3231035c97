package kv_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/windtunnel/windtunnel/core/kv"
	"github.com/windtunnel/windtunnel/core/kv/kvcodec"
	"github.com/windtunnel/windtunnel/core/kv/kvfeed"
	"github.com/windtunnel/windtunnel/core/kv/kvindex"
	"github.com/windtunnel/windtunnel/core/machine"
)

// recordedRun is one line of testdata/precise-prefix.jsonl: what the endpoint
// picker of llm-d-router v0.10.0 did with events and requests.
type recordedRun struct {
	ID, Config, Mode string
	Endpoints        []struct{ Name, Address, Port string }
	Steps            []recordedStep
}

type recordedStep struct {
	KVEvent *struct {
		From, Topic string
		Seq         uint64
		Payload     string   `json:"payload_hex"`
		Frames      []string `json:"frames_hex"`
	} `json:"kv_event"`
	Request *struct {
		ID   string
		Body string
	}
	TokenIDs [][]uint32 `json:"token_ids"`
	Scores   map[string]float64
	Picked   string
	Buffer   map[string]string `json:"replay_buffer_hex"`
	Asked    [][]string        `json:"replay_requests_so_far_hex"`
	SleepS   float64           `json:"sleep_s"`
	Started  string            `json:"publisher_started"`
	Restart  string            `json:"publisher_restarted"`
}

// recordedFeed is a feed with what it has to say.
type recordedFeed struct {
	*kvfeed.Feed
	fx kvfeed.Effects
}

// recordedPicker plays the part of the driver: frames in, scores out.
type recordedPicker struct {
	t        *testing.T
	run      recordedRun
	discover bool
	ix       *kvindex.Index
	hasher   kv.Hasher
	fx       kvindex.Effects // of the index; nobody reads them
	feeds    map[string]*recordedFeed
	now      machine.Time
	buffer   map[uint64][]byte
	asked    [][]string
	ttl      machine.Time
	weight   float64
}

// The scores that the index gives are those that were recorded.
func TestRecordedScores(t *testing.T) {
	file, err := os.ReadFile("testdata/precise-prefix.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(file))
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var run recordedRun
		if err := json.Unmarshal(lines.Bytes(), &run); err != nil {
			t.Fatal(err)
		}
		t.Run(run.ID, func(t *testing.T) {
			p := newRecordedPicker(t, run)
			scores := 0
			for i, s := range run.Steps {
				scores += p.step(i, s)
			}
			if scores == 0 {
				t.Fatal("no score was compared")
			}
		})
	}
}

func newRecordedPicker(t *testing.T, run recordedRun) *recordedPicker {
	setting := func(name, otherwise string) string {
		if m := regexp.MustCompile(name + `: "?(\w+)"?`).FindStringSubmatch(run.Config); m != nil {
			return m[1]
		}
		return otherwise
	}
	p := &recordedPicker{t: t, run: run, discover: run.Mode == "discoverPods", feeds: map[string]*recordedFeed{},
		weight: 1, now: machine.Second}
	p.hasher.BlockTokens, _ = strconv.Atoi(setting("blockSizeTokens", "16"))
	p.hasher.Seed = setting("hashSeed", "")
	if setting("speculativeIndexing", "") == "true" {
		p.ttl = 2 * machine.Second
	}
	if run.ID == "deprecated-scorer-central" {
		p.weight = 2
	}
	gaps := kvfeed.GapsIgnore
	if strings.Contains(run.Config, "replaySocketPort") {
		gaps = kvfeed.GapsReplay
	}
	p.ix = kvindex.New(kvindex.Config{Hasher: p.hasher})
	for _, e := range run.Endpoints {
		f := &recordedFeed{Feed: kvfeed.New(kvfeed.Config{Gaps: gaps, Probe: -1})} // the recorded picker does not probe
		p.feeds[e.Name] = f
		if gaps == kvfeed.GapsReplay {
			f.Input(p.now, kvfeed.Message{Kind: kvfeed.Connected}, &f.fx)
			p.drain(e.Name, kv.Topic{})
		}
	}
	return p
}

func (p *recordedPicker) endpoint(name string) string {
	for _, e := range p.run.Endpoints {
		if e.Name == name {
			return e.Address + ":" + e.Port
		}
	}
	return ""
}

func (p *recordedPicker) step(i int, s recordedStep) int {
	p.now += 100 * machine.Millisecond
	switch {
	case s.KVEvent != nil:
		p.frames(s)
	case s.Request != nil:
		return p.request(i, s)
	case s.SleepS > 0:
		p.now += machine.Time(s.SleepS * 1e9)
	case s.Buffer != nil:
		p.buffer = map[uint64][]byte{}
		for seq, payload := range s.Buffer {
			n, _ := strconv.ParseUint(seq, 10, 64)
			p.buffer[n] = unhex(payload)
		}
	case s.Asked != nil:
		for j, ask := range s.Asked {
			if j >= len(p.asked) || p.asked[j][1] != ask[1] {
				p.t.Fatalf("step %d: replays asked for %v, recorded %v", i, p.asked, s.Asked)
			}
		}
	case s.Restart != "":
		p.feeds[s.Restart].Input(p.now, kvfeed.Message{Kind: kvfeed.Connected}, &p.feeds[s.Restart].fx)
		p.drain(s.Restart, kv.Topic{})
	}
	return 0
}

func (p *recordedPicker) frames(s recordedStep) {
	e := s.KVEvent
	frames := [][]byte{[]byte(e.Topic), kv.EncodeSequence(e.Seq), unhex(e.Payload)}
	if e.Frames != nil {
		frames = nil
		for _, f := range e.Frames {
			frames = append(frames, unhex(f))
		}
	}
	if len(frames) != 3 {
		return
	}
	topic, err := kv.ParseTopic(string(frames[0]))
	if err != nil {
		return
	}
	seq, err := kv.DecodeSequence(frames[1])
	if err != nil {
		return
	}
	if p.discover {
		topic.Pod = p.endpoint(e.From)
	}
	p.feeds[e.From].Input(p.now, kvfeed.Message{Kind: kvfeed.Live, Seq: seq, Payload: frames[2]}, &p.feeds[e.From].fx)
	p.drain(e.From, topic)
}

// drain carries out a feed's effects. Only w2 has a replay socket; in replay-broken it answers nothing but its end
// while the stream continues.
func (p *recordedPicker) drain(name string, topic kv.Topic) {
	f := p.feeds[name]
	for {
		f.Advance(p.now, &f.fx)
		todo := f.fx.List
		f.fx = kvfeed.Effects{}
		if len(todo) == 0 {
			return
		}
		for _, e := range todo {
			switch e.Kind {
			case kvfeed.Deliver:
				var d kvcodec.Decoder
				b, err := d.Decode(e.Payload)
				if err != nil {
					continue
				}
				for i := range b.Events {
					p.ix.Input(p.now, &kvindex.Events{From: topic, List: b.Events[i : i+1]}, &p.fx)
				}
			case kvfeed.Lost:
				p.ix.Input(p.now, kvindex.DropBlocks{Pod: p.endpoint(name)}, &p.fx)
			case kvfeed.AskReplay:
				p.asked = append(p.asked, []string{"", hex.EncodeToString(kv.EncodeSequence(e.Seq))})
				if p.run.ID != "replay-broken" || len(p.asked) > 2 {
					var seqs []uint64
					for seq := range p.buffer {
						if seq >= e.Seq {
							seqs = append(seqs, seq)
						}
					}
					sort.Slice(seqs, func(i, j int) bool { return seqs[i] < seqs[j] })
					for _, seq := range seqs {
						f.Input(p.now, kvfeed.Message{Kind: kvfeed.Replayed, Seq: seq, Payload: p.buffer[seq]}, &f.fx)
					}
				}
				f.Input(p.now, kvfeed.Message{Kind: kvfeed.ReplayEnded, Whole: true}, &f.fx)
			}
		}
	}
}

func (p *recordedPicker) request(i int, s recordedStep) int {
	if s.Scores == nil {
		return 0
	}
	var body struct {
		Model, CacheSalt string
		Salt             string `json:"cache_salt"`
		Prompt           any
	}
	if err := json.Unmarshal([]byte(s.Request.Body), &body); err != nil {
		p.t.Fatal(err)
	}
	if s.Request.ID == "rewrite-m1-to-m2" { // the picker rewrote the model
		body.Model = "m2"
	}
	prompts := s.TokenIDs
	if ids, ok := body.Prompt.([]any); ok && prompts == nil {
		prompts = [][]uint32{nil}
		for _, v := range ids {
			if n, ok := v.(float64); ok {
				prompts[0] = append(prompts[0], uint32(n))
			}
		}
	}
	var keys []kv.Key
	for _, tokens := range prompts {
		keys = append(keys, p.hasher.PromptKeys(body.Model, body.Salt, tokens)...)
	}
	p.ix.Advance(p.now, &p.fx)
	got := map[string]float64{}
	for _, score := range p.ix.View().Scorer().Score(keys) {
		got[score.Pod] = score.Precise(len(keys)) * p.weight
	}
	for pod, want := range s.Scores {
		if math.Abs(got[pod]-want) > 1e-9 {
			p.t.Errorf("step %d, request %s: %s scores %v, recorded %v", i, s.Request.ID, pod, got[pod], want)
		}
	}
	if p.ttl > 0 {
		p.ix.Input(p.now, kvindex.Speculate{Pod: s.Picked, Keys: keys, TTL: p.ttl}, &p.fx)
	}
	return len(s.Scores)
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}
