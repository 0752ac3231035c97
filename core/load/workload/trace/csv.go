package trace

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// csv reads lines with a time, a prompt's length and an answer's length, after a header with the names of the columns.
type csv struct {
	format string
	names  [3]string // time, prompt, answer
	time   func(string) (float64, error)
	also   []string

	columns map[string]int
}

func (c *csv) assumed() []string {
	return append([]string{allDifferent}, c.also...)
}

func (c *csv) line(text string) (r row, header bool, err error) {
	if c.columns == nil {
		return r, true, c.header(text)
	}
	fields := strings.Split(text, ",")
	field := func(i int) string {
		if at := c.columns[c.names[i]]; at < len(fields) {
			return strings.TrimSpace(fields[at])
		}
		return ""
	}
	r.at, err = c.time(field(0))
	for i, to := range []*int{&r.input, &r.output} {
		if err == nil {
			if *to, err = strconv.Atoi(field(i + 1)); err != nil {
				err = fmt.Errorf("%s: found %.80q; expected a whole number of tokens", c.names[i+1], field(i+1))
			}
		}
	}
	return r, false, err
}

func (c *csv) header(text string) error {
	c.columns = map[string]int{}
	for i, name := range strings.Split(text, ",") {
		c.columns[strings.TrimSpace(name)] = i
	}
	for _, name := range c.names {
		if _, ok := c.columns[name]; !ok {
			return fmt.Errorf("found %.200q; expected a header with %s, as the %s format has", text,
				strings.Join(c.names[:], ", "), c.format)
		}
	}
	if _, ok := c.columns["NumImages"]; ok { // Azure's of 2025
		c.also = append(c.also, "the images of its requests are left out")
	}
	return nil
}

func seconds(text string) (float64, error) {
	at, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(at) || math.IsInf(at, 0) {
		return 0, fmt.Errorf("time: found %.80q; expected seconds", text)
	}
	return at, nil
}

// wallClock reads a time such as 2023-11-16 18:15:46.6805900, with or without a fraction or a zone, in seconds.
func wallClock(text string) (float64, error) {
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return float64(at.Unix()) + float64(at.Nanosecond())/1e9, nil
		}
	}
	return 0, fmt.Errorf("TIMESTAMP: found %.80q; expected such as 2023-11-16 18:15:46.6805900", text)
}
