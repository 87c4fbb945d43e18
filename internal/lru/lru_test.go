package lru

import "testing"

func TestBoundAndOrder(t *testing.T) {
	c := New[int, string](8 * (overhead + 10))
	for i := range 8 {
		c.Put(i, "v", 10)
	}
	c.Get(0)
	c.Put(8, "new", 10)
	if _, ok := c.Get(1); ok {
		t.Error("the value used longest ago is still there")
	}
	if v, ok := c.Get(0); !ok || v != "v" {
		t.Error("a value used lately is gone")
	}
	c.Put(8, "newer", 20)
	if v, _ := c.Get(8); v != "newer" {
		t.Errorf("replaced value is %q", v)
	}
	if c.Bytes() > 8*(overhead+10) {
		t.Errorf("cache weighs %d bytes", c.Bytes())
	}
	c.Put(9, "huge", 8*(overhead+10))
	if _, ok := c.Get(9); ok {
		t.Error("a value of the whole cache was kept")
	}
	c.Remove(8)
	if _, ok := c.Get(8); ok {
		t.Error("a removed value is still there")
	}
}
