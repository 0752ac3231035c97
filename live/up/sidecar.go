package up

func (u *Up) startSidecar(p *pod, decoder string) error { return nil }
