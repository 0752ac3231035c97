package latency

import (
	"github.com/windtunnel/windtunnel/core/modelserver/latency/hardware"
	"github.com/windtunnel/windtunnel/core/modelserver/latency/modelshape"

	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed data/step-times.csv
var builtinCSV string

// Measured holds the points of one model on one accelerator type and tensor parallel size.
type Measured struct {
	Model, System, Backend string
	TP                     int
	Points                 []Point
}

var csvHeader = []string{"model", "system", "backend", "tp", "phase", "batch", "context_tokens", "ms"}

// maxCSVBytes limits the size of a user's table.
const maxCSVBytes = 16 << 20

// ParseCSV parses measured points. After a header line, each line has model, system, backend, tp, phase (prefill,
// decode, or mixed:TOKENS for a decode step that also computes a prompt of so many tokens), batch, context_tokens and
// ms. Lines that begin with # are comments. Errors name file and line.
func ParseCSV(file, text string) (all []Measured, err error) {
	index := map[string]int{}
	err = ReadCSV(file, text, maxCSVBytes, csvHeader, func(fields []string) error {
		m, p, err := parseRecord(fields)
		if err != nil {
			return err
		}
		key := strings.Join([]string{m.Model, m.System, m.Backend, strconv.Itoa(m.TP)}, "\x00")
		i, known := index[key]
		if !known {
			i = len(all)
			index[key], all = i, append(all, m)
		}
		all[i].Points = append(all[i].Points, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ReadCSV calls each with the fields of every line of a table of at most so many bytes, after a line with the header.
// Lines that begin with # are comments. The next line reuses the memory of fields. Errors name file and line.
func ReadCSV(file, text string, most int, header []string, each func(fields []string) error) error {
	if len(text) > most {
		return fmt.Errorf("%s: %d bytes; at most %d are read", file, len(text), most)
	}
	r := csv.NewReader(strings.NewReader(text))
	r.Comment, r.FieldsPerRecord, r.ReuseRecord = '#', len(header), true
	for first := true; ; first = false {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var bad *csv.ParseError
		if errors.As(err, &bad) {
			return fmt.Errorf("%s:%d: %w; expected the fields %s", file, bad.Line, bad.Err, strings.Join(header, ","))
		}
		line, _ := r.FieldPos(0)
		switch {
		case !first:
			err = each(fields)
		case !slices.Equal(fields, header):
			err = fmt.Errorf("the header is %.200q; expected %q", strings.Join(fields, ","), strings.Join(header, ","))
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", file, line, err)
		}
	}
}

func parseRecord(f []string) (m Measured, p Point, err error) {
	whole := func(name, text string) int64 {
		n, bad := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if (bad != nil || n < 1 || n > 1<<24) && err == nil {
			err = fmt.Errorf("%s is %q; expected a whole number from 1 to %d", name, text, 1<<24)
		}
		return n
	}
	m = Measured{Model: strings.Clone(f[0]), System: strings.Clone(f[1]), Backend: strings.Clone(f[2]),
		TP: int(whole("tp", f[3]))}
	p.Batch, p.Context = whole("batch", f[5]), whole("context_tokens", f[6])
	switch prompt, isMixed := strings.CutPrefix(f[4], "mixed:"); {
	case isMixed:
		p.Decode, p.Prompt = true, whole("the prompt of phase mixed", prompt)
	case f[4] == "decode":
		p.Decode = true
	case f[4] != "prefill":
		err = fmt.Errorf("phase is %q; expected prefill, decode, or mixed:TOKENS for a decode step that computes a "+
			"prompt of that many tokens, too", f[4])
	}
	v, bad := strconv.ParseFloat(strings.TrimSpace(f[7]), 64)
	if (bad != nil || !(v > 0 && v <= 3600e3)) && err == nil {
		err = fmt.Errorf("ms is %q; expected milliseconds above 0 and at most 3600000", f[7])
	}
	if err == nil {
		p.Nanoseconds = int64(float64(v*1e6) + 0.5)
	}
	return m, p, err
}

// Builtin returns the measured tables that come with windtunnel.
var Builtin = sync.OnceValue(func() []Measured {
	all, err := ParseCSV("step-times.csv", builtinCSV)
	if err != nil {
		panic(err) // embedded in this binary and parsed by a test
	}
	return all
})

// builtinPoints returns the built-in table of a hardware, if there is one. The points were measured in bfloat16.
func builtinPoints(h *hardware.Hardware) ([]Point, string, bool) {
	if h.Weights.Name != "" || h.KV != modelshape.BF16 || h.Group.DP > 1 || h.Group.EP {
		return nil, "", false
	}
	for _, m := range Builtin() {
		shape, err := modelshape.Named(m.Model)
		if err != nil || m.TP != h.Group.TP {
			continue
		}
		accelerator, err := hardware.AcceleratorNamed(m.System)
		if err == nil && accelerator.Name == h.Accelerator.Name && sameSize(&shape, &h.Model) {
			return m.Points, fmt.Sprintf("%s on %s, TP %d, %s, AIConfigurator 0.12.0", m.Model, m.System, m.TP,
				m.Backend), true
		}
	}
	return nil, "", false
}

// sameSize reports whether two models take the same steps, whatever their names.
func sameSize(a, b *modelshape.Shape) bool {
	x, y := *a, *b
	x.Name, y.Name, x.MaxModelLen, y.MaxModelLen = "", "", 0, 0
	x.Quantization, y.Quantization = nil, nil // Hardware.Weights is the actual storage
	return x == y
}
