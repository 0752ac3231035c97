package diagnosis

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/windtunnel/windtunnel/core/diagnose"
	"github.com/windtunnel/windtunnel/report/terminal"
)

// Write prints a diagnosis for people, on lines of so many columns. With 0 columns, lines never break.
func Write(to io.Writer, d *diagnose.Diagnosis, columns int) error {
	var b strings.Builder
	add := func(label, text string) {
		const hang = 10
		line := fmt.Sprintf("%-*s", hang, label) + terminal.Printable(text)
		if columns > 0 {
			line = terminal.Wrap(line, hang, columns)
		}
		b.WriteString(line + "\n")
	}
	list := func(label string, texts []string) {
		for i, text := range texts {
			add(map[bool]string{true: label}[i == 0], text)
		}
	}
	b.WriteString(Verdict(d) + "\n")
	list("symptoms", d.Symptoms)
	for i := range d.Findings {
		f := &d.Findings[i]
		b.WriteString("\n")
		add("leaf", fmt.Sprintf("%s: %s (%s, %s)", f.Leaf, f.Cause, f.Branch, f.Source))
		add("sure", fmt.Sprintf("%s: %s", f.Sure, f.Why))
		list("evidence", f.Evidence)
		list("remedy", f.Remedies)
		for j, t := range f.Tried {
			effect := map[bool]string{true: "helps", false: "does not help"}[t.Helps]
			add(map[bool]string{true: "played"}[j == 0], fmt.Sprintf("%s %s: %s", t.Remedy, effect, t.Effect))
		}
	}
	for i := range d.Alternatives {
		x := &d.Alternatives[i]
		add(map[bool]string{true: "or"}[i == 0], fmt.Sprintf("%s (%s): %s", x.Leaf, x.Sure, x.Evidence[0]))
	}
	if len(d.Walk)+len(d.Notes) > 0 {
		b.WriteString("\n")
	}
	list("walk", d.Walk)
	list("notes", d.Notes)
	_, err := io.WriteString(to, b.String())
	return err
}

// Verdict returns the diagnosis in a line.
func Verdict(d *diagnose.Diagnosis) string {
	var leaves []string
	for i := range d.Findings {
		leaves = append(leaves, fmt.Sprintf("%s (%s)", d.Findings[i].Leaf, d.Findings[i].Sure))
	}
	switch text := strings.Join(leaves, ", "); {
	case text == "" && len(d.Symptoms) == 0:
		return "nothing is wrong"
	default:
		return cmp.Or(text, "the trees have no leaf for the symptoms")
	}
}
