package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
)

// TestHalvesOfCharacters sends escapes of half a character, as a text that was cut
// in JavaScript ends with: what is said in a conversation is kept as it is, an id
// is refused by its name.
func TestHalvesOfCharacters(t *testing.T) {
	s := newStack(t)
	token := s.threadToken("t")
	var l api.Lease
	s.want(http.StatusCreated, "POST", threadPath("t", "lease"), token, nil, &l)
	manifest := func(id, key, said string) string {
		files := ""
		if key != "" {
			files = `{"path":"f","kind":"file","size":1,"blobKey":"` + key + `"}`
		}
		return fmt.Sprintf(`{"checkpoint":{"id":"%s","threadId":"t","parentCheckpointId":null,"createdAt":1,"reason":"automatic","files":[%s],"conversation":[{"role":"user","content":"%s"}],"artifacts":[]},
			"expectedHeadId":null,"external_blobs":true,"writer":{"threadId":"t","ownerToken":"%s","fence":%d}}`, id, files, said, l.OwnerToken, l.Fence)
	}
	path := threadPath("t", "manifests")
	s.refused(http.StatusBadRequest, api.InvalidID, "POST", path, token, manifest(`a\ud800`, "", ""))
	s.refused(http.StatusBadRequest, api.InvalidEntry, "POST", path, token, manifest("a", `sandbox-files/sha256/\udfff`, ""))
	s.refused(http.StatusBadRequest, api.Invalid, "POST", path, token, manifest("a", "", "\xed\xa0\x80"))
	s.want(http.StatusCreated, "POST", path, token, manifest("a", "", `cut \ud83d`), nil)
	if a := s.do("GET", "/api/checkpoints/a?manifests=true", token, nil); a.status != 200 || !strings.Contains(string(a.body), `"cut \ud83d"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	writer := fmt.Sprintf(`"writer":{"threadId":"t","ownerToken":"%s","fence":%d}`, l.OwnerToken, l.Fence)
	s.refused(http.StatusBadRequest, api.InvalidID, "DELETE", threadPath("t", "head"), token, `{"checkpointId":"\ud800",`+writer+`}`)
	s.refused(http.StatusBadRequest, api.InvalidID, "POST", "/api/checkpoints/a/fork", s.threadToken("*"), `{"thread":"u","id":"\ud800"}`)
	s.refused(http.StatusBadRequest, api.InvalidID, "POST", threadPath("t", "checkpoints"), token, `{"id":"\ud800","root":"`+strings.Repeat("0", 64)+`","onto":"head"}`)
}
