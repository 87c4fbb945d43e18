package odb

// Remember lets sets that begin with the packs of db be opened from it.
func (s *Store) Remember(db *DB) {
	if n := len(db.packs); n > 0 {
		s.tails.Put(db.packs[n-1].info.ID, db, int64(256+16*n))
	}
}
