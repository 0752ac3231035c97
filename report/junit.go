package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"

	"github.com/windtunnel/windtunnel/report/terminal"
)

// The elements of JUnit's XML that test reporters read.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitTrouble `xml:"failure"`
		Error   *junitTrouble `xml:"error"`
	}
	junitTrouble struct {
		Message string `xml:"message,attr"`
	}
)

// WriteJUnit writes the verdict on a run as JUnit's XML: a test case for each
// expectation or, where there are none, one that all requests complete; and one for each
// index of KV blocks. An interrupted run is an error.
func (s Summary) WriteJUnit(w io.Writer) error {
	s = s.printable()
	suite := junitSuite{Name: "windtunnel " + cmp.Or(terminal.Printable(s.Scenario), "scenario"), Time: fmt.Sprintf("%.6f", s.Duration)}
	add := func(name string, ok bool, message string) {
		c := junitCase{Class: suite.Name, Name: name}
		if !ok {
			c.Failure = &junitTrouble{message}
			suite.Failures++
		}
		suite.Cases = append(suite.Cases, c)
	}
	for _, e := range s.Expectations {
		add(e.What+" "+e.Expected, e.OK, "found "+e.Found)
	}
	if len(s.Expectations) == 0 && !s.Interrupted {
		add("every request completes", s.Failed() == 0, fmt.Sprintf("%d of %d requests did not complete", s.Failed(), s.Requests))
	}
	for _, x := range s.IndexLag {
		add("KV index "+x.Index, x.OK(), fmt.Sprintf("not the union of the engines' blocks: %d missing, %d too many", x.Missing, x.Extra))
	}
	if s.Interrupted {
		suite.Cases = append(suite.Cases, junitCase{Class: suite.Name, Name: "the run ends by itself", Error: &junitTrouble{"interrupted"}})
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
