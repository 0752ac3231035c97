package objects_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/windtunnel/windtunnel/core/epp/picker"
	. "github.com/windtunnel/windtunnel/core/epp/picker/objects"
)

// TestScripts plays testdata/scripts: "read file=… [again]" reads YAML into a
// new set (or one more file into the same), "select name=…" shows what a pool
// sees, "pods selector=…" what a selector selects.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		set, ages := &Set{}, &Ages{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			switch d.Cmd {
			case "read":
				file := "objects.yaml"
				d.MaybeScanArgs(t, "file", &file)
				if !d.HasArg("again") {
					set = &Set{}
				}
				warned := len(set.Warnings)
				if err := set.Add(file, []byte(d.Input)); err != nil {
					return err.Error() + "\n"
				}
				for _, w := range set.Warnings[warned:] {
					fmt.Fprintln(&out, "warning:", w)
				}
				ages.Settle(set)
				fmt.Fprintf(&out, "%d pools, %d pods, %d objectives, %d rewrites\n", len(set.Pools), len(set.Pods),
					len(set.Objectives), len(set.Rewrites))
			case "select":
				name, namespace := "", "default"
				d.ScanArgs(t, "name", &name)
				d.MaybeScanArgs(t, "namespace", &namespace)
				show(&out, set.Select(namespace, name))
			case "pods":
				s, err := picker.ParseSelector(d.Input)
				if err != nil {
					return err.Error() + "\n"
				}
				fmt.Fprintf(&out, "%v\n", s)
				for _, e := range set.Endpoints("default", s, []int{8000}) {
					fmt.Fprintln(&out, e.ID(), e.HostPort())
				}
			default:
				return "unknown command"
			}
			return out.String()
		})
	})
}

func show(out *strings.Builder, s Selection) {
	if !s.Found {
		out.WriteString("no such pool\n")
		return
	}
	fmt.Fprintf(out, "pool %s/%s group %s ports %v protocol %s\n", s.Pool.Namespace, s.Pool.Name, s.Pool.Group,
		s.Pool.Ports, s.Pool.AppProtocol)
	if p := s.Pool.Picker; p != nil {
		fmt.Fprintf(out, "picker %+v\n", *p)
	}
	if k := s.Pool.KServe; k != nil {
		fmt.Fprintf(out, "kserve %+v\n", *k)
	}
	for _, e := range s.Endpoints {
		fmt.Fprintf(out, "endpoint %s %s", e.ID(), e.HostPort())
		if v := s.Announced[e.ID()]; v != nil {
			fmt.Fprintf(out, " %+v", *v)
		}
		out.WriteByte('\n')
	}
	if len(s.Objects.Objectives) > 0 {
		fmt.Fprintf(out, "objectives %v priorities %v\n", s.Objects.Objectives, s.Priorities)
	}
	for _, r := range s.Objects.Rewrites {
		fmt.Fprintf(out, "rewrite %s:", r.Name)
		for _, rule := range r.Rules {
			fmt.Fprintf(out, " %v ->", rule.Models)
			for _, t := range rule.Targets {
				weight := "-"
				if t.Weight != nil {
					weight = fmt.Sprint(*t.Weight)
				}
				fmt.Fprintf(out, " %s*%s", t.Model, weight)
			}
		}
		out.WriteByte('\n')
	}
}
