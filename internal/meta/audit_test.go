package meta

import (
	"reflect"
	"testing"
	"time"
)

// silent are the fields of a Change that are no action, or part of another.
var silent = map[string]bool{
	"Org": true, "Repo": true, "Token": true, "SourcePackSet": true, "Refs": true, "Untidy": true, "AddPack": true,
	"Reserve": true, "Reservation": true,
	"ReplacePacks": true, "Events": true, "Idempotency": true, "Route": true, "Subject": true, "Agent": true,
	"Replace": true, "BeginSync": true, "EndSync": true,
	"PutBlob": true, "ForgetBlobs": true, "Content": true, "Thread": true, "Name": true, "Writer": true, "Unheld": true, "Acquire": true, "Renew": true, "Release": true,
	"Append": true, "Expected": true, "AnyHead": true, "Segments": true,
}

// TestEveryChangeIsAudited sets each field of a Change on its own.
func TestEveryChangeIsAudited(t *testing.T) {
	walk := func(of reflect.Type, change func(name string, field int) Change) {
		for i := range of.NumField() {
			name := of.Field(i).Name
			c := change(name, i)
			if n := len(c.Actions()); (n == 0) != silent[name] {
				t.Errorf("%s.%s is %d actions", of.Name(), name, n)
			}
		}
	}
	fill := func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Struct:
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
		case reflect.String:
			v.SetString("x")
		default:
			v.SetInt(1)
		}
	}
	walk(reflect.TypeFor[Change](), func(name string, i int) Change {
		var c Change
		if name != "Follow" {
			fill(reflect.ValueOf(&c).Elem().Field(i))
		} else {
			c.Follow = &FollowChange{Detach: true}
		}
		return c
	})
	walk(reflect.TypeFor[ThreadChange](), func(_ string, i int) Change {
		c := Change{Thread: new(ThreadChange)}
		fill(reflect.ValueOf(c.Thread).Elem().Field(i))
		return c
	})
	walk(reflect.TypeFor[FollowChange](), func(_ string, i int) Change {
		c := Change{Follow: new(FollowChange)}
		fill(reflect.ValueOf(c.Follow).Elem().Field(i))
		return c
	})
}
