package carina

import (
	"encoding/json"
	"math"
	"unicode"
	"unicode/utf8"
)

// Spec is the quality of service that an application requests for a flow. For delay, bandwidth and
// jitter, 0 means no requirement.
type Spec struct {
	// MaxDelayUs is the longest delay of an SDU in microseconds.
	MaxDelayUs uint32 `json:"max_delay_us"`
	// MaxSDUGap is the largest number of consecutive SDUs that may be lost.
	MaxSDUGap uint64 `json:"max_sdu_gap"`
	// AvgBandwidthBps is the average bandwidth in bits per second.
	AvgBandwidthBps uint64 `json:"avg_bandwidth_bps"`
	// MaxLoss is the largest share of SDUs that may be lost, in 1/10000.
	MaxLoss uint16 `json:"max_loss"`
	// InOrder is true when SDUs arrive in the order in which they were sent.
	InOrder bool `json:"in_order"`
	// MsgBoundaries is true when the boundaries of SDUs are kept.
	MsgBoundaries bool `json:"msg_boundaries"`
	// MaxJitterUs is the largest variation of the delay in microseconds.
	MaxJitterUs uint32 `json:"max_jitter_us"`
}

// Reliable requests every SDU exactly once, complete and in order.
func Reliable() Spec { return Spec{InOrder: true, MsgBoundaries: true} }

// Unreliable requests nothing but the boundaries of SDUs.
func Unreliable() Spec {
	return Spec{MaxSDUGap: math.MaxUint64, MaxLoss: 10_000, MsgBoundaries: true}
}

// Info describes a flow.
type Info struct {
	// Local is the name of the application at this end.
	Local string
	// Remote is the name of the application at the other end.
	Remote string
	// DIF is the name of the DIF that carries the flow.
	DIF string
	// Port is the port-id of the flow on this system.
	Port uint32
	// Spec is the specification that the calling application requested.
	Spec Spec
	// MaxSDU is the longest SDU in bytes that the flow carries; 0 for a byte stream.
	MaxSDU int
}

// Addr is the address of one end of a flow: the name of an application.
type Addr struct {
	// Name is the name of the application.
	Name string
	// DIF is the DIF in which the name was found or registered; empty if there are several.
	DIF string
}

// Network returns "carina".
func (a Addr) Network() string { return network }

// String returns the name of the application.
func (a Addr) String() string { return a.Name }

const network = "carina"

func (i *Info) localAddr() Addr  { return Addr{Name: i.Local, DIF: i.DIF} }
func (i *Info) remoteAddr() Addr { return Addr{Name: i.Remote, DIF: i.DIF} }

// How an application exchanges SDUs with its node.
const (
	modeSocket = "socket" // a SOCK_SEQPACKET socket: one message is one SDU
	modeStream = "stream" // a SOCK_STREAM socket: bytes
)

type registerRequest struct {
	Op      string  `json:"op"`
	Version uint32  `json:"version"`
	Name    string  `json:"name"`
	DIF     *string `json:"dif"`
}

type allocateRequest struct {
	Op      string  `json:"op"`
	Version uint32  `json:"version"`
	Local   string  `json:"local"`
	Remote  string  `json:"remote"`
	DIF     *string `json:"dif"`
	Spec    Spec    `json:"spec"`
	Mode    string  `json:"mode"`
}

type respondRequest struct {
	Op      string  `json:"op"`
	Request uint32  `json:"request"`
	Accept  bool    `json:"accept"`
	Reason  *string `json:"reason"`
	Mode    string  `json:"mode"`
}

// answer is a message of the node: exactly one field is set.
type answer struct {
	registered  *registeredAnswer
	flowRequest *flowRequestAnswer
	flow        *flowAnswer
	refusal     *refusalAnswer
}

type registeredAnswer struct {
	Name string   `json:"name"`
	DIFs []string `json:"difs"`
}

type flowRequestAnswer struct {
	Request *uint32 `json:"request"`
	Local   string  `json:"local"`
	Remote  string  `json:"remote"`
	DIF     string  `json:"dif"`
	Spec    Spec    `json:"spec"`
}

type flowAnswer struct {
	Request *uint32 `json:"request"`
	Port    uint32  `json:"port"`
	Local   string  `json:"local"`
	Remote  string  `json:"remote"`
	DIF     string  `json:"dif"`
	Spec    Spec    `json:"spec"`
	SDUMax  uint64  `json:"sdu_max"`
	Mode    string  `json:"mode"`
}

type refusalAnswer struct {
	Request *uint32 `json:"request"`
	Code    Code    `json:"code"`
	Message string  `json:"message"`
	Final   bool    `json:"final"`
}

// decode reads a message of the node and checks what a caller relies on. Its errors are
// ErrProtocol.
func decode(message []byte) (answer, error) {
	if len(message) > messageMax {
		return answer{}, protocolError("a message has %d bytes; at most %d are allowed",
			len(message), messageMax)
	}
	var kinds map[string]json.RawMessage
	if err := json.Unmarshal(message, &kinds); err != nil {
		return answer{}, protocolError("a message is not a JSON object: %v", err)
	}
	if len(kinds) != 1 {
		return answer{}, protocolError("a message has %d kinds; it must have 1", len(kinds))
	}
	var decoded answer
	for kind, body := range kinds {
		if err := decoded.read(kind, body); err != nil {
			return answer{}, err
		}
	}
	return decoded, nil
}

func (a *answer) read(kind string, body json.RawMessage) error {
	var err error
	var names []string
	switch kind {
	case "registered":
		a.registered = new(registeredAnswer)
		err = json.Unmarshal(body, a.registered)
		names = append([]string{a.registered.Name}, a.registered.DIFs...)
	case "flow_request":
		a.flowRequest = new(flowRequestAnswer)
		err = json.Unmarshal(body, a.flowRequest)
		if err == nil && a.flowRequest.Request == nil {
			return protocolError("a flow_request has no field \"request\"")
		}
		names = []string{a.flowRequest.Local, a.flowRequest.Remote, a.flowRequest.DIF}
	case "flow":
		a.flow = new(flowAnswer)
		err = json.Unmarshal(body, a.flow)
		if err == nil && a.flow.Port == 0 {
			return protocolError("a flow has the port-id 0")
		}
		names = []string{a.flow.Local, a.flow.Remote, a.flow.DIF}
	case "error":
		a.refusal = new(refusalAnswer)
		err = json.Unmarshal(body, a.refusal)
		if err == nil && a.refusal.Code == "" {
			return protocolError("an error has no field \"code\"")
		}
	default:
		return protocolError("a message is of the kind %q; "+
			"known are registered, flow_request, flow and error", kind)
	}
	if err != nil {
		return protocolError("a message of the kind %q: %v", kind, err)
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return protocolError("a message of the kind %q: %v", kind, err)
		}
	}
	return nil
}

func (f *flowAnswer) info() Info {
	info := Info{
		Local: f.Local, Remote: f.Remote, DIF: f.DIF, Port: f.Port, Spec: f.Spec,
	}
	if f.Mode == modeSocket {
		info.MaxSDU = socketSDUMax
		if f.SDUMax > 0 && f.SDUMax < socketSDUMax {
			info.MaxSDU = int(f.SDUMax)
		}
	}
	return info
}

func (r *refusalAnswer) err() error {
	return &RefusedError{Code: r.Code, Message: r.Message, Final: r.Final}
}

// checkName checks the rules for names of applications and DIFs.
func checkName(name string) error {
	bad := func(message string) error {
		return &RefusedError{Code: BadRequest, Message: message, Final: true}
	}
	switch {
	case name == "":
		return bad("a name is empty; it must have 1 to 255 bytes")
	case len(name) > nameMax:
		return bad("a name has more than 255 bytes")
	case !utf8.ValidString(name):
		return bad("a name is not UTF-8")
	}
	for _, char := range name {
		if unicode.IsControl(char) {
			return bad("a name holds a control character; none is allowed")
		}
	}
	return nil
}

// optional returns nil for an empty text.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

const (
	// protocolVersion is the version of the protocol on ipc.sock.
	protocolVersion = 1
	// messageMax is the longest message on ipc.sock in bytes.
	messageMax = 64 << 10
	// socketSDUMax is the longest SDU in bytes of a flow in socket mode.
	socketSDUMax = 65_536
	// nameMax is the longest name in bytes.
	nameMax = 255
)
