package carina

import (
	"errors"
	"testing"
)

// FuzzDecode decodes messages of a node that may lie: an error is ErrProtocol, and a message that
// is accepted has what callers rely on. Its corpus is in testdata.
func FuzzDecode(f *testing.F) {
	f.Fuzz(func(t *testing.T, message []byte) {
		decoded, err := decode(message)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("%q gives %v", message, err)
			}
			return
		}
		var names []string
		kinds := 0
		if r := decoded.registered; r != nil {
			kinds++
			names = append(append(names, r.Name), r.DIFs...)
		}
		if r := decoded.flowRequest; r != nil {
			kinds++
			names = append(names, r.Local, r.Remote, r.DIF)
			if r.Request == nil {
				t.Fatal("a flow request has no number")
			}
		}
		if r := decoded.flow; r != nil {
			kinds++
			info := r.info()
			names = append(names, info.Local, info.Remote, info.DIF)
			if info.Port == 0 || info.MaxSDU < 0 || info.MaxSDU > socketSDUMax {
				t.Fatalf("a flow is described as %+v", info)
			}
		}
		if r := decoded.refusal; r != nil {
			kinds++
			if r.err().Error() == "" || r.Code == "" {
				t.Fatal("a refusal has no code")
			}
		}
		if kinds != 1 {
			t.Fatalf("%q has %d kinds", message, kinds)
		}
		for _, name := range names {
			if checkName(name) != nil {
				t.Fatalf("%q has the name %q", message, name)
			}
		}
	})
}
