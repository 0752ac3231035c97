package web_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windtunnel/windtunnel/web"
)

// The page answers only browsers on this machine that have the token, and no requests from other sites' pages.
func TestWhoMayAsk(t *testing.T) {
	server, err := web.Start(web.Options{Book: web.NewBook()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	link, _ := url.Parse(server.Link())
	own, token := "http://"+link.Host, link.Query().Get("token")
	cookie := "windtunnel-" + link.Port() + "=" + token
	for _, x := range []struct {
		name, method, path string
		header             map[string]string
		want               int
	}{
		{"without a token", "GET", "/", nil, 403},
		{"with a wrong token", "GET", "/?token=" + strings.Repeat("0", 32), nil, 403},
		{"with the token", "GET", "/?token=" + token, nil, 200},
		{"a link in a chat", "GET", "/?token=" + token,
			map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
				"Sec-Fetch-Dest": "document"}, 200},
		{"a frame in another page", "GET", "/?token=" + token,
			map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
			403},
		{"data without a cookie", "GET", "/data/meta", nil, 403},
		{"data with the token in its address", "GET", "/data/meta?token=" + token, nil, 403},
		{"data", "GET", "/data/meta", map[string]string{"Cookie": cookie}, 200},
		{"data with another port's cookie", "GET", "/data/meta", map[string]string{"Cookie": "windtunnel-1=" + token},
			403},
		{"data for another page", "GET", "/data/meta",
			map[string]string{"Cookie": cookie, "Sec-Fetch-Site": "cross-site"}, 403},
		{"data for another port's page", "GET", "/data/meta",
			map[string]string{"Cookie": cookie, "Sec-Fetch-Site": "same-site"}, 403},
		{"a name that leads here", "GET", "/data/meta",
			map[string]string{"Cookie": cookie, "Host": "attacker.example:" + link.Port()}, 421},
		{"a post without an origin", "POST", "/data/meta",
			map[string]string{"Cookie": cookie, "Content-Type": "application/json"}, 403},
		{"another page's post", "POST", "/data/meta",
			map[string]string{"Cookie": cookie, "Content-Type": "application/json",
				"Origin": "http://attacker.example"}, 403},
		{"another page's form", "POST", "/data/meta",
			map[string]string{"Cookie": cookie, "Content-Type": "text/plain", "Origin": own}, 403},
		{"the page's post to what takes none", "POST", "/data/meta",
			map[string]string{"Cookie": cookie, "Content-Type": "application/json", "Origin": own}, 405},
		{"nothing there", "GET", "/data/nothing", map[string]string{"Cookie": cookie}, 404},
		{"no request of that name", "GET", "/data/request?id=x", map[string]string{"Cookie": cookie}, 404},
	} {
		r, err := http.NewRequest(x.method, own+x.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range x.header {
			if r.Header.Set(name, value); name == "Host" {
				r.Host = value
			}
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != x.want {
			t.Errorf("%s: got %d, expected %d", x.name, resp.StatusCode, x.want)
		}
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self' 'sha256-") ||
			strings.Contains(policy, "unsafe") || resp.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: the policy of the answer is %q", x.name, policy)
		}
		if set := resp.Header.Get("Set-Cookie"); set != "" &&
			(!strings.Contains(set, "HttpOnly") || !strings.Contains(set, "SameSite=Strict")) {
			t.Errorf("%s: cookie %q", x.name, set)
		}
	}
}

// A second what-if question waits for the first, which ends when its page leaves.
func TestQuestionsWaitForEachOther(t *testing.T) {
	server, err := web.Start(web.Options{Book: web.NewBook()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	reads := make(chan struct{})
	server.Inputs(func(each func(line []byte) error) error {
		reads <- struct{}{}
		for {
			if err := each(nil); err != nil {
				return err
			}
		}
	})
	link, _ := url.Parse(server.Link())
	ask := func() context.CancelFunc {
		ctx, leave := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", "http://"+link.Host+"/data/whatif", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "Origin": {"http://" + link.Host},
			"Cookie": {"windtunnel-" + link.Port() + "=" + link.Query().Get("token")}}
		go func() {
			if resp, err := http.DefaultClient.Do(r); err == nil {
				resp.Body.Close()
				t.Errorf("answered: %s", resp.Status)
				select {
				case reads <- struct{}{}: // the test does not wait in vain
				case <-t.Context().Done():
				}
			}
		}()
		return leave
	}
	leave := ask()
	<-reads
	second := ask()
	select {
	case <-reads:
		t.Fatal("two questions are answered at once")
	case <-time.After(50 * time.Millisecond):
	}
	leave()
	<-reads
	second()
}

// Third-party files are unchanged and have their licences.
func TestThirdParty(t *testing.T) {
	text, err := os.ReadFile("third_party/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var packages []struct {
		Package, Version, Licence, Integrity string
		Files                                map[string]struct{ From, SHA256 string }
	}
	if err := json.Unmarshal(text, &packages); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{"manifest.json": true}
	for _, p := range packages {
		if p.Licence == "" || !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%s: expected its licence and the registry's hash", p.Package)
		}
		for name, f := range p.Files {
			listed[name] = true
			text, err := os.ReadFile(filepath.Join("third_party", name))
			if err != nil {
				t.Error(err)
				continue
			}
			if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != f.SHA256 {
				t.Errorf("%s is not what %s %s has", name, p.Package, p.Version)
			}
		}
	}
	err = filepath.WalkDir("third_party", func(path string, d fs.DirEntry, err error) error {
		if name, _ := filepath.Rel("third_party", path); err == nil && !d.IsDir() && !listed[filepath.ToSlash(name)] {
			t.Errorf("%s is not in the manifest", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
