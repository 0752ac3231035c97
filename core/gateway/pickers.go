package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// PickerReplicas are how many endpoint pickers a pool has, and of how many Envoy may
// choose: with an election one leads, and the others wait.
func (s *Set) PickerReplicas(b *Backend) (all, asked int) {
	w, c := s.PickerOf(b)
	if c == nil {
		return 1, 1
	}
	if v, given := c.Flag("ha-enable-leader-election"); given && v != "false" {
		return w.Replicas, min(w.Replicas, 1)
	}
	return w.Replicas, w.Replicas
}

// PickerConfig is the EndpointPickerConfig of a pool, and where it stands; nil is
// the default one. It is that of the Deployment behind the pool's Service, else
// the one that a ConfigMap beside the pool holds. The note says what was taken to be meant,
// "" where nothing was.
func (s *Set) PickerConfig(b *Backend) (text []byte, from, note string, err error) {
	p := b.Pool
	near := []string{p.Namespace}
	if b.Picker != nil {
		near = append(near, b.Picker.Namespace)
	}
	if w, c := s.PickerOf(b); c != nil {
		text, from, err = pickerFlags(s, w, c)
		return text, from, "", err
	}
	type found struct{ text, from string }
	var all []found
	for i := range s.ConfigMaps {
		m := &s.ConfigMaps[i]
		for _, name := range slices.Sorted(maps.Keys(m.Data)) {
			if slices.Contains(near, m.Namespace) && isPickerConfig(m.Data[name]) {
				all = append(all, found{m.Data[name], fmt.Sprintf("%s:%d: ConfigMap %s/%s: %s", m.File, m.Line, m.Namespace, m.Name, name)})
			}
		}
	}
	switch len(all) {
	case 0:
		return nil, "", "", nil
	case 1:
		return []byte(all[0].text), all[0].from, fmt.Sprintf("%s is the configuration of InferencePool %s/%s: no other is near it", all[0].from, p.Namespace, p.Name), nil
	}
	return nil, "", fmt.Sprintf("%s:%d: InferencePool %s/%s: %d ConfigMaps hold an EndpointPickerConfig and none is mounted by the picker's Deployment; the default one counts", p.File, p.Line, p.Namespace, p.Name, len(all)), nil
}

// isPickerConfig says whether a text is an EndpointPickerConfig, today's or
// document 003's.
func isPickerConfig(text string) bool {
	return strings.Contains(text, "kind: EndpointPickerConfig") || strings.HasPrefix(strings.TrimSpace(text), "profiles:") && strings.Contains(text, "plugins:")
}

// pickerFlags is the configuration that a picker's container is started with.
func pickerFlags(s *Set, w *Workload, c *Container) ([]byte, string, error) {
	at := fmt.Sprintf("%s:%d: %s %s/%s: container %s", w.File, c.At.Line(), w.Kind, w.Namespace, w.Name, c.Name)
	if text, ok := c.Flag("config-text"); ok {
		return []byte(text), at + ": --config-text", nil
	}
	path, ok := c.Flag("config-file")
	if !ok {
		return nil, "", nil
	}
	text, from, found := s.Mounted(w, c, path)
	if !found {
		return nil, "", fmt.Errorf("%s: --config-file %s is in no ConfigMap that is mounted; expected a volume with a ConfigMap among the objects", at, path)
	}
	return []byte(text), from, nil
}
