package graph

// Exercise does every lookup that a graph does of a table.
func Exercise(t *Table) {
	for i := range t.n {
		lo, hi := t.span(i)
		for k := lo; k < hi; k++ {
			if v := be32(t.parents, int(k)); v >= uint32(t.n) {
				t.outsideID(v - uint32(t.n))
			}
		}
		if r, ok := t.find(t.pos(i)); !ok || r != i {
			panic("a record is not found by its position")
		}
	}
}
