// Package kvfeed watches one publisher's sequence numbers: a Feed puts messages
// into order and says when to ask for a replay and when what the publisher holds
// is lost.
package kvfeed
