package rest

import (
	"encoding/binary"
	"math"

	"github.com/cairnstate/cairn/internal/checkpoint"
)

// textPosition reads a cursor that afterName made of any text; "" is the start.
func textPosition(cursor string, kind byte) (string, error) {
	if cursor == "" {
		return "", nil
	}
	if len(cursor) > maxPathCursor {
		return "", badCursor()
	}
	data, err := decodeCursor(cursor, kind)
	return string(data), err
}

// afterCheckpoint is the cursor that continues after a checkpoint.
func afterCheckpoint(cp *checkpoint.Checkpoint) string {
	data := binary.BigEndian.AppendUint64([]byte{pointCursor}, math.Float64bits(cp.Created))
	return cursorEncoding.EncodeToString(append(data, cp.ID...))
}

// checkpointPosition reads a cursor of checkpoints, which must not be empty.
func checkpointPosition(cursor string) (created float64, id string, err error) {
	data, err := openCursor(cursor, pointCursor)
	if err != nil {
		return 0, "", err
	}
	if len(data) <= 8 {
		return 0, "", badCursor()
	}
	created = math.Float64frombits(binary.BigEndian.Uint64(data))
	if math.IsNaN(created) || math.IsInf(created, 0) {
		return 0, "", badCursor()
	}
	return created, string(data[8:]), nil
}
