package flow

// Explanation is the detail of EndpointPicked that holds the whole decision as
// JSON text, for windtunnel explain. Views for people leave it out: it is a
// page, not a word.
const Explanation = "explanation"
