package whatif

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/windtunnel/windtunnel/core/epp/picker/config"
)

// Change returns an EndpointPickerConfig, the picker's default for an empty text, with other weights of scorers and
// without the plug-ins of off in their profiles. Scorers are named by the name of their plug-in or as PROFILE/NAME,
// plug-ins that are off as PROFILE/NAME. Errors name the file, if name is not empty.
func Change(name, text string, weights map[string]float64, off []string) (string, error) {
	text = cmp.Or(text, config.DefaultText)
	if len(weights)+len(off) == 0 {
		return text, nil
	}
	var c map[string]any
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return "", fmt.Errorf("%s: %w", cmp.Or(name, "the configuration"), err)
	}
	profiles, _ := c["schedulingProfiles"].([]any)
	if len(profiles) == 0 {
		return "", errors.New("the configuration names no scheduling profiles, so there are no weights to change; " +
			"give a whole configuration with schedulingProfiles instead")
	}
	found := map[string]bool{}
	var scorers []string
	for _, p := range profiles {
		profile, _ := p.(map[string]any)
		name, _ := profile["name"].(string)
		list, _ := profile["plugins"].([]any)
		var kept []any
		for _, x := range list {
			plugin, _ := x.(map[string]any)
			ref, _ := plugin["pluginRef"].(string)
			key := name + "/" + ref
			scorers = append(scorers, key)
			if slices.Contains(off, key) {
				continue
			}
			for _, k := range []string{ref, key} {
				if w, ok := weights[k]; ok {
					plugin["weight"], found[k] = w, true
				}
			}
			kept = append(kept, x)
		}
		profile["plugins"] = kept
	}
	for key := range weights {
		if !found[key] {
			return "", fmt.Errorf("the configuration has no scorer %s; expected one of %s", key,
				strings.Join(scorers, ", "))
		}
	}
	out, err := yaml.Marshal(c)
	return string(out), err
}

// SetParameter returns an EndpointPickerConfig in which a plug-in's parameter has another value, in YAML. path names
// the parameter, with dots between nested names. found is false if no plug-in has this name.
func SetParameter(text, plugin, path, value string) (out string, found bool, err error) {
	var c map[string]any
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return "", false, err
	}
	var v any
	if err := yaml.Unmarshal([]byte(value), &v); err != nil {
		return "", false, err
	}
	list, _ := c["plugins"].([]any)
	for _, x := range list {
		p, _ := x.(map[string]any)
		if p == nil || plugin != cmp.Or(asText(p["name"]), asText(p["type"])) {
			continue
		}
		found = true
		at, names := p, append([]string{"parameters"}, strings.Split(path, ".")...)
		for _, name := range names[:len(names)-1] {
			next, _ := at[name].(map[string]any)
			if next == nil {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		at[names[len(names)-1]] = v
	}
	b, err := yaml.Marshal(c)
	return string(b), found, err
}

// asText returns a text, "" for anything else.
func asText(v any) string {
	s, _ := v.(string)
	return s
}
