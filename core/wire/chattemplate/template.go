package chattemplate

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controlstructures "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// Limits for one template and for one prompt.
const (
	MaxTemplateBytes = 1 << 20
	// MaxPromptBytes is the longest prompt that Render writes.
	MaxPromptBytes = 64 << 20
	// maxSteps limits the tags, outputs and rounds of loops for one prompt. In a long conversation each counts for
	// more, since templates loop over the messages repeatedly.
	maxSteps = 8 << 20
	maxRange = 100_000
)

// Template is a chat template. Many goroutines may use it at once.
type Template struct {
	template *exec.Template
	special  map[string]string
	parts    bool // the template loops over the parts of a content
}

// partsPattern finds a loop over a message's content. Like vLLM (vllm/renderers/hf.py), the package uses it to decide
// in which of two forms a template expects contents.
var partsPattern = regexp.MustCompile(`\{%-?\s*for\s+\w+\s+in\s+(\w+\.content|\w+\[['"]content['"]\]|content)\b`)

// Continued returns a prompt without the text after its last message, so that the model continues that message
// (continue_final_message of transformers' utils/chat_template_utils.py).
func Continued(prompt, last string) (string, error) {
	bare := strings.TrimSpace(last)
	at := strings.LastIndex(prompt, bare)
	if at < 0 {
		return "", errors.New("continue_final_message is set but the final message does not appear in the chat after " +
			"applying the chat template! " +
			"This can happen if the chat template deletes portions of the final message.")
	}
	if whole := strings.TrimLeft(last, " \t\r\n"); strings.HasPrefix(prompt[at:], whole) {
		bare = whole
	}
	return prompt[:at+len(bare)], nil
}

// Raised is a template's raise_exception: the template refuses the conversation, with this message.
type Raised struct{ Message string }

func (e *Raised) Error() string { return e.Message }

// tags are the tags that templates may use. The library's others read files or belong to web pages.
var tags = []string{"for", "if", "set", "with", "macro", "call", "filter", "raw", "break", "continue", "do"}

// Parse compiles a template. name is its file or place, for errors. special are texts that templates use by name, such
// as bos_token.
func Parse(name, text string, special map[string]string) (*Template, error) {
	if len(text) > MaxTemplateBytes {
		return nil, fmt.Errorf("%s: the chat template has %d bytes, the limit is %d", name, len(text), MaxTemplateBytes)
	}
	if err := onlyKnownTags(text); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	const root = "/template"
	loader, err := loaders.NewMemoryLoader(map[string]string{root: rewritten(text)})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true
	t := &Template{special: special, parts: partsPattern.MatchString(text)}
	err = safely(func() error {
		if t.template, err = exec.NewTemplate(root, c, loader, environment); err == nil {
			measureNodes(t.template.Root().Nodes)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, syntaxError(err))
	}
	return t, nil
}

// syntaxError returns a parser's error without the text of the template.
func syntaxError(err error) error {
	if e, ok := errors.AsType[*parser.SyntaxError](err); ok && e.Line > 0 {
		return fmt.Errorf("line %d: %s, near %.40q", e.Line, e.Message, e.Raw)
	}
	text := err.Error()
	if i := strings.LastIndex(text, "': "); i >= 0 && strings.HasPrefix(text, "failed to parse template") {
		text = text[i+3:]
	}
	return errors.New(text)
}

// tagPattern finds tags, and the comments and raw passages in which tags do not count.
var tagPattern = regexp.MustCompile(
	`(?s)\{#.*?#\}|\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}|\{%[-+]?\s*([A-Za-z_]\w*)`)

func onlyKnownTags(text string) error {
	for _, m := range tagPattern.FindAllStringSubmatchIndex(text, -1) {
		if m[2] < 0 {
			continue
		}
		tag := text[m[2]:m[3]]
		switch {
		case slices.Contains(tags, strings.TrimPrefix(tag, "end")), tag == "generation", tag == "endgeneration",
			tag == "elif", tag == "else":
		default:
			return fmt.Errorf("line %d: the tag %q is not supported, expected one of %s or generation",
				1+strings.Count(text[:m[2]], "\n"), tag, strings.Join(tags, ", "))
		}
	}
	return nil
}

// filterNames are Jinja's filters without the one that draws at random.
var filterNames = strings.Fields(`
	abs attr batch capitalize center default d dictsort e escape filesizeformat first float forceescape
	format groupby indent int join items keys values last length count list lower map max min pprint
	rejectattr reject replace reverse round safe selectattr select slice sort string striptags sum title
	tojson trim truncate unique upper urlencode urlize wordcount wordwrap xmlattr`)

// environment is the environment of transformers' apply_chat_template.
var environment = func() *exec.Environment {
	known := map[string]parser.ControlStructureParser{"generation": generation}
	for _, name := range tags {
		parse, ok := builtins.ControlStructures.Get(name)
		if !ok {
			continue
		}
		if own := ownTags[name]; own != nil {
			parse = own
		}
		known[name] = func(p, args *parser.Parser) (nodes.ControlStructure, error) {
			made, err := parse(p, args)
			if inner, ok := made.(exec.ControlStructure); ok && err == nil {
				return &counted{inner}, nil
			}
			return made, err
		}
	}
	globals := map[string]any{"range": rangeOf, "raise_exception": raise, "strftime_now": strftimeNow}
	for _, name := range []string{"dict", "namespace", "joiner", "cycler"} {
		globals[name], _ = builtins.GlobalFunctions.Get(name)
	}
	maps.Copy(globals, operators)
	own := map[string]exec.FilterFunction{"tojson": toJSON, "items": ofDict(pairOf), "keys": ofDict(keyOf),
		"values": ofDict(valueOf)}
	return &exec.Environment{Context: exec.NewContext(globals), Filters: filters(own, filterNames),
		Tests:             builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(known), Methods: methods()}
}()

// Client is the client that waits for a prompt.
type Client interface {
	// HasLeft reports whether the client no longer waits, so that work for it can stop.
	HasLeft() bool
}

// Render writes a conversation as a prompt. The error is a *Raised where the template refuses the conversation. Render
// asks the client at intervals whether it has left, and then stops with an error. A nil client never leaves.
func (t *Template) Render(c *Conversation, client Client) (string, error) {
	w := &writer{budget: budget{client: client, left: maxSteps, each: 1 + (len(c.Messages)+len(c.Tools))/256}}
	data := map[string]any{budgetName: &w.budget}
	for name, text := range t.special {
		data[name] = text
	}
	if err := c.values(data, t.parts); err != nil {
		return "", err
	}
	err := safely(func() error { return t.template.Execute(w, exec.NewContext(data)) })
	switch {
	case w.raised != nil:
		return "", w.raised
	case w.err != nil:
		return "", w.err
	case err != nil:
		return "", fmt.Errorf("the chat template cannot write this conversation: %s", last(err))
	}
	if n := len(c.Messages); c.Continue && n > 0 {
		m := &c.Messages[n-1]
		if k := len(m.Parts); t.parts && k > 0 {
			return Continued(w.text.String(), m.Parts[k-1])
		}
		return Continued(w.text.String(), m.Content)
	}
	return w.text.String(), nil
}

// last returns the innermost error of one that every level of the template has wrapped.
func last(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "): "); i >= 0 {
		text = text[i+3:]
	}
	return text[:min(len(text), 300)]
}

// safely runs library code on input from outside and turns a panic into an error.
func safely(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("the template library failed") // the panic's text is for the library's authors
		}
	}()
	return do()
}

// budget counts down the work for one prompt and holds the reason why it ended.
type budget struct {
	client     Client
	sinceLook  int // bytes of work since HasLeft was last called
	left, each int
	made       int // bytes of values made
	nested     int // depth of macro calls
	raised     *Raised
	err        error
}

// budgetName is a name that no template can write.
const budgetName = " budget"

var errWork = fmt.Errorf("the chat template takes more than %d steps for this conversation", maxSteps)

// take counts n steps before they are taken.
func (b *budget) take(n int) error {
	if b.err == nil {
		if b.left -= n * b.each; b.left < 0 {
			b.err = errWork
		}
	}
	return b.look(n * stepBytes)
}

// Render asks whether the client has left after about lookBytes of work. A step counts as stepBytes of work.
const (
	lookBytes = 1 << 20
	stepBytes = 256
)

var errLeft = errors.New("the client left before its chat template was rendered")

// look counts n bytes of work. It returns the reason why the work must end, or nil.
func (b *budget) look(n int) error {
	if b.sinceLook += n; b.sinceLook >= lookBytes && b.client != nil && b.err == nil {
		if b.sinceLook = 0; b.client.HasLeft() {
			b.err = errLeft
		}
	}
	return b.err
}

func budgetOf(c *exec.Context) *budget {
	v, _ := c.Get(budgetName)
	b, _ := v.(*budget)
	return b
}

// writer collects the prompt.
type writer struct {
	budget
	text strings.Builder
}

func (w *writer) Write(p []byte) (int, error) { return w.WriteString(string(p)) }

func (w *writer) WriteString(s string) (int, error) {
	if w.text.Len()+len(s) > MaxPromptBytes && w.err == nil {
		w.err = fmt.Errorf("the chat template writes more than %d bytes", MaxPromptBytes)
	}
	if err := w.take(1); err != nil {
		return 0, err
	}
	return w.text.WriteString(s)
}

// counted is a tag that counts its work.
type counted struct{ exec.ControlStructure }

// Execute implements exec.ControlStructure.
func (c *counted) Execute(r *exec.Renderer, block *nodes.ControlStructureBlock) error {
	b := budgetOf(r.Environment.Context)
	n := 1
	if loop, ok := c.ControlStructure.(*controlstructures.ForControlStructure); ok {
		// An empty round writes nothing, so the rounds count by themselves.
		if over := r.Eval(loop.ObjectEvaluator); !over.IsError() && !over.IsNil() {
			n += over.Len()
		}
	}
	if err := b.take(n); err != nil {
		return err
	}
	if err := c.ControlStructure.Execute(r, block); err != nil {
		return err
	}
	if macro, ok := c.ControlStructure.(*controlstructures.MacroControlStructure); ok {
		made, _ := r.Environment.Context.Get(macro.Name)
		if call, ok := made.(exec.Macro); ok {
			r.Environment.Context.Set(macro.Name,
				exec.Macro(func(args *exec.VarArgs) *exec.Value { return b.within(call, args) }))
		}
	}
	return nil
}

// maxNested limits how deeply macros may call one another.
const maxNested = 100

// within calls a macro, if the calls are not too deep.
func (b *budget) within(call exec.Macro, args *exec.VarArgs) *exec.Value {
	if b.nested++; b.nested > maxNested && b.err == nil {
		b.err = fmt.Errorf("the chat template's macros call each other more than %d deep", maxNested)
	}
	defer func() { b.nested-- }()
	if err := b.take(1); err != nil {
		return exec.AsValue(err)
	}
	return call(args)
}

// generation is {% generation %}, which encloses the model's output. The enclosed text stays as it is.
func generation(p, args *parser.Parser) (nodes.ControlStructure, error) {
	wrapper, _, err := p.WrapUntil("endgeneration")
	return &enclosed{wrapper}, err
}

type enclosed struct{ *nodes.Wrapper }

// Execute implements exec.ControlStructure.
func (e *enclosed) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteWrapper(e.Wrapper)
}

func raise(e *exec.Evaluator, args *exec.VarArgs) (string, error) {
	message := ""
	if len(args.Args) > 0 {
		message = args.Args[0].String()
	}
	raised := &Raised{message[:min(len(message), 1000)]}
	if b := budgetOf(e.Environment.Context); b != nil {
		b.raised = raised
	}
	return "", raised
}

func rangeOf(e *exec.Evaluator, args *exec.VarArgs) ([]int, error) {
	from, to, step := 0, 0, 1
	for i, a := range args.Args {
		if !a.IsInteger() || i > 2 {
			return nil, errors.New("range takes one to three whole numbers")
		}
	}
	switch a := args.Args; len(a) {
	case 1:
		to = a[0].Integer()
	case 2:
		from, to = a[0].Integer(), a[1].Integer()
	case 3:
		from, to, step = a[0].Integer(), a[1].Integer(), a[2].Integer()
	}
	if step == 0 {
		return nil, errors.New("range with a step of 0")
	}
	var out []int
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		if len(out) == maxRange {
			return nil, fmt.Errorf("range of more than %d numbers", maxRange)
		}
		out = append(out, i)
	}
	return out, budgetOf(e.Environment.Context).take(len(out))
}

// today is the date that templates get. It is always the same, so that a scenario gives the same prompts every day, in
// real time and in virtual time.
var today = time.Date(2026, time.January, 15, 12, 0, 0, 0, time.UTC)

// strftimeNow formats today like Python's strftime.
func strftimeNow(_ *exec.Evaluator, args *exec.VarArgs) (string, error) {
	if len(args.Args) != 1 {
		return "", errors.New("strftime_now takes a format")
	}
	forms := strings.NewReplacer("%Y", "2006", "%y", "06", "%m", "01", "%d", "02", "%-d", "2", "%B", "January", "%b",
		"Jan", "%A", "Monday", "%a", "Mon",
		"%H", "15", "%M", "04", "%S", "05", "%Z", "UTC", "%%", "%")
	return today.Format(forms.Replace(args.Args[0].String())), nil
}
