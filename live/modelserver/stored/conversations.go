package stored

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/windtunnel/windtunnel/core/modelserver"
	"github.com/windtunnel/windtunnel/core/wire/openai"
	"github.com/windtunnel/windtunnel/live/modelserver/wire"
)

// conversation is a list of items that responses continue from and append to.
type conversation struct {
	id      string
	created int64

	mu       sync.Mutex
	metadata json.RawMessage
	items    []modelserver.Item
	weight   int // size of the items in bytes
	next     int
}

func (s *Store) conversation(id string) *conversation {
	v, _ := s.get(id)
	c, _ := v.(*conversation)
	return c
}

func (c *conversation) list() []modelserver.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.items)
}

// add appends items, gives each an id, and drops the oldest beyond the limits. It returns by how many bytes the
// conversation has grown.
func (c *conversation) add(items []modelserver.Item) (grown int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range items {
		if items[i].ID == "" {
			c.next++
			items[i].ID = fmt.Sprintf("item_%s_%d", c.id[len("conv_"):], c.next)
		}
	}
	before := c.weight
	c.items = append(c.items, items...)
	c.weight += itemsBytes(items)
	extra := 0
	for ; len(c.items)-extra > modelserver.MaxItems || c.weight > maxConversationBytes; extra++ {
		c.weight -= c.items[extra].Bytes()
	}
	if extra > 0 {
		c.items = slices.Clone(c.items[extra:]) // the copy lets the dropped items be freed
	}
	return c.weight - before
}

// addTo adds items to a stored conversation.
func (s *Store) addTo(c *conversation, items []modelserver.Item) { s.grow(c.id, c.add(items)) }

func (c *conversation) text() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return openai.Fill(nil, `{"id":$,"object":"conversation","created_at":$,"metadata":$}`, c.id, c.created,
		[]byte(c.metadata))
}

func appendItems(b []byte, items []modelserver.Item, more bool) []byte {
	b = append(b, `{"object":"list","data":[`...)
	for i := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = modelserver.AppendItem(b, &items[i])
	}
	var first, last any
	if n := len(items); n > 0 {
		first, last = items[0].ID, items[n-1].ID
	}
	return openai.Fill(b, `],"first_id":$,"last_id":$,"has_more":$}`, first, last, more)
}

type conversationRequest struct {
	Metadata json.RawMessage `json:"metadata"`
	Items    json.RawMessage `json:"items"`
}

func (q *conversationRequest) read(s *Store, w http.ResponseWriter, r *http.Request) ([]modelserver.Item, bool) {
	body, ok := wire.ReadBody(w, r, s.maxBody)
	if !ok {
		return nil, false
	}
	if len(body) > 0 {
		if bad := openai.Decode(body, q); bad != nil {
			wire.Answer(w, bad)
			return nil, false
		}
	}
	if len(q.Metadata) == 0 || string(q.Metadata) == "null" {
		q.Metadata = json.RawMessage("{}")
	}
	if len(q.Items) == 0 || string(q.Items) == "null" || string(q.Items) == "[]" {
		return nil, true
	}
	items, bad := modelserver.ParseItems(q.Items)
	if bad != nil {
		wire.Answer(w, bad)
		return nil, false
	}
	if n := itemsBytes(items) + len(q.Metadata); n > maxConversationBytes {
		wire.Answer(w, openai.TooLarge("items",
			"items and metadata take %d bytes; a conversation keeps at most %d.", n, maxConversationBytes))
		return nil, false
	}
	return items, true
}

// createConversation answers POST /v1/conversations.
func (s *Store) createConversation(w http.ResponseWriter, r *http.Request) {
	var q conversationRequest
	items, ok := q.read(s, w, r)
	if !ok {
		return
	}
	c := &conversation{id: "conv_" + wire.NewID(), created: time.Now().Unix(), metadata: q.Metadata}
	grown := c.add(items)
	s.put(c.id, c, grown+cap(c.metadata))
	wire.Write(w, http.StatusOK, wire.JSON, c.text())
}

// withConversation passes the conversation that the path names to serve.
func (s *Store) withConversation(serve func(w http.ResponseWriter, r *http.Request, c *conversation)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c := s.conversation(r.PathValue("id"))
		if c == nil {
			wire.Answer(w, openai.NotFound("conversation_id", "Conversation with id '%s' not found.",
				r.PathValue("id")))
			return
		}
		serve(w, r, c)
	}
}

// Routes registers the API below /v1/responses and /v1/conversations, except for creating a response.
func (s *Store) Routes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/responses/{id}", s.getResponse)
	if s.responses { // vLLM has no such endpoint
		mux.HandleFunc("DELETE /v1/responses/{id}", s.deleteResponse)
	}
	mux.HandleFunc("POST /v1/responses/{id}/cancel", s.cancelResponse)
	mux.HandleFunc("POST /v1/conversations", s.createConversation)
	mux.HandleFunc("GET /v1/conversations/{id}",
		s.withConversation(func(w http.ResponseWriter, _ *http.Request, c *conversation) {
			wire.Write(w, http.StatusOK, wire.JSON, c.text())
		}))
	mux.HandleFunc("POST /v1/conversations/{id}", s.withConversation(s.updateConversation))
	mux.HandleFunc("DELETE /v1/conversations/{id}",
		s.withConversation(func(w http.ResponseWriter, _ *http.Request, c *conversation) {
			s.delete(c.id)
			wire.Write(w, http.StatusOK, wire.JSON,
				fmt.Appendf(nil, `{"id":%q,"object":"conversation.deleted","deleted":true}`, c.id))
		}))
	mux.HandleFunc("GET /v1/conversations/{id}/items", s.withConversation(listItems))
	mux.HandleFunc("POST /v1/conversations/{id}/items", s.withConversation(s.addItems))
	mux.HandleFunc("GET /v1/conversations/{id}/items/{item}", s.withConversation(getItem))
	mux.HandleFunc("DELETE /v1/conversations/{id}/items/{item}", s.withConversation(s.deleteItem))
}

func (s *Store) updateConversation(w http.ResponseWriter, r *http.Request, c *conversation) {
	var q conversationRequest
	if _, ok := q.read(s, w, r); !ok {
		return
	}
	c.mu.Lock()
	grown := cap(q.Metadata) - cap(c.metadata)
	c.metadata = q.Metadata
	c.mu.Unlock()
	s.grow(c.id, grown)
	wire.Write(w, http.StatusOK, wire.JSON, c.text())
}

func (s *Store) addItems(w http.ResponseWriter, r *http.Request, c *conversation) {
	var q conversationRequest
	items, ok := q.read(s, w, r)
	if !ok {
		return
	}
	s.addTo(c, items)
	wire.Write(w, http.StatusOK, wire.JSON, appendItems(nil, items, false))
}

func listItems(w http.ResponseWriter, r *http.Request, c *conversation) {
	items := c.list()
	if r.URL.Query().Get("order") != "asc" {
		slices.Reverse(items) // the API's default is the newest first
	}
	if after := r.URL.Query().Get("after"); after != "" {
		if i := slices.IndexFunc(items, func(it modelserver.Item) bool { return it.ID == after }); i >= 0 {
			items = items[i+1:]
		}
	}
	limit := 20
	if n, err := strconv.Atoi(r.URL.Query().Get("limit")); err == nil && n >= 1 && n <= 100 {
		limit = n
	}
	more := len(items) > limit
	wire.Write(w, http.StatusOK, wire.JSON, appendItems(nil, items[:min(limit, len(items))], more))
}

func getItem(w http.ResponseWriter, r *http.Request, c *conversation) {
	for _, it := range c.list() {
		if it.ID == r.PathValue("item") {
			wire.Write(w, http.StatusOK, wire.JSON, modelserver.AppendItem(nil, &it))
			return
		}
	}
	wire.Answer(w, openai.NotFound("item_id", "Item with id '%s' not found.", r.PathValue("item")))
}

func (s *Store) deleteItem(w http.ResponseWriter, r *http.Request, c *conversation) {
	c.mu.Lock()
	before := c.weight
	c.items = slices.DeleteFunc(c.items, func(it modelserver.Item) bool {
		gone := it.ID == r.PathValue("item")
		if gone {
			c.weight -= it.Bytes()
		}
		return gone
	})
	c.items = slices.Clone(c.items)
	grown := c.weight - before
	c.mu.Unlock()
	s.grow(c.id, grown)
	wire.Write(w, http.StatusOK, wire.JSON, c.text())
}
