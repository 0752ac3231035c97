package soak

import "testing"

// Whatever arrives at any port of a whole stack, the next ordinary request is answered, and nothing stays in flight.
//
//	go test -run '^$' -fuzz FuzzPorts -fuzztime 10m -parallel 1 ./bench/soak
func FuzzPorts(f *testing.F) {
	const question = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	for port := range byte(20) {
		f.Add(port, post(question))
		f.Add(port, []byte("GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "+
			"chunked\r\n\r\nfffffffffffffffff\r\n"))
		f.Add(port, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
		f.Add(port, append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"), make([]byte, 60)...))
		f.Add(port, []byte("\x16\x03\x01\x00\xa5\x01\x00"))
	}
	f.Add(byte(0), post(pull(seeded()), headers(seeded())...))
	rigs := make([]*rig, len(scenarios))
	for i, text := range scenarios {
		rigs[i] = start(f, text)
	}
	f.Fuzz(func(t *testing.T, port byte, text []byte) {
		n := int(port)
		for _, r := range rigs {
			if n >= len(r.ports) {
				n -= len(r.ports)
				continue
			}
			r.send(r.ports[n], text, false)
			if bad := r.ask(question); bad != "" {
				t.Fatalf("after %q at the %s: %s", text, r.ports[n].Part, bad)
			}
			r.idle(t)
			return
		}
	})
}
