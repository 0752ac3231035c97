package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/windtunnel/windtunnel/report/terminal"
)

// The elements of JUnit's XML that test reporters read.
type (
	junitSuite struct {
		XMLName  xml.Name      `xml:"testsuite"`
		Name     string        `xml:"name,attr"`
		Tests    int           `xml:"tests,attr"`
		Failures int           `xml:"failures,attr"`
		Errors   int           `xml:"errors,attr"`
		Time     string        `xml:"time,attr"`
		Figures  []junitFigure `xml:"properties>property"`
		Cases    []junitCase   `xml:"testcase"`
		Out      struct {
			Text string `xml:",cdata"`
		} `xml:"system-out"`
	}
	junitFigure struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitTrouble `xml:"failure"`
		Error   *junitTrouble `xml:"error"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitTrouble struct {
		Message string `xml:"message,attr"`
	}
)

// WriteJUnit writes the verdict on a run as JUnit's XML. It has a test case for each expectation, or one that all
// requests complete where there are none, and one for each index of KV blocks. An interrupted run is an error. Every
// measure is a property of the suite, and the summary for people is its output.
func (s Summary) WriteJUnit(w io.Writer) error {
	s = s.printable()
	suite := junitSuite{Name: "windtunnel " + cmp.Or(terminal.Printable(s.Scenario), "scenario"),
		Time: fmt.Sprintf("%.6f", s.Duration)}
	for _, m := range s.Measures {
		figure := func(name string, v float64) {
			suite.Figures = append(suite.Figures, junitFigure{name, strconv.FormatFloat(v, 'f', -1, 64)})
		}
		if figure(m.Measure, m.Value); m.Low != nil {
			figure(m.Measure+" low", *m.Low)
			figure(m.Measure+" high", *m.High)
		}
	}
	var text strings.Builder
	if err := s.Write(&text, false, 0); err != nil {
		return err
	}
	suite.Out.Text = text.String()
	add := func(name string, ok bool, message string) {
		c := junitCase{Class: suite.Name, Name: name}
		if ok {
			c.Out = message
		} else {
			c.Failure = &junitTrouble{message}
			suite.Failures++
		}
		suite.Cases = append(suite.Cases, c)
	}
	for _, e := range s.Expectations {
		add(e.What+" "+e.Expected, e.OK, "found "+e.Found)
	}
	if len(s.Expectations) == 0 && !s.Interrupted {
		add("every request completes", s.Failed() == 0,
			fmt.Sprintf("%d of %d requests did not complete", s.Failed(), s.Requests))
	}
	for _, x := range s.IndexLag {
		add("KV index "+x.Index, x.OK(),
			fmt.Sprintf("%d of the engines' blocks missing, %d too many", x.Missing, x.Extra))
	}
	if s.Interrupted {
		suite.Cases = append(suite.Cases,
			junitCase{Class: suite.Name, Name: "the run ends by itself", Error: &junitTrouble{"interrupted"}})
		suite.Errors++
	}
	suite.Tests = len(suite.Cases)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(suite); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
