-- in_use: a key that is in use is kept for longer, so that its next states are overwritten in place.
--
-- In   lifetime of a debt in µs; deadline: until which Redis keeps its state, or 0
-- Out  lifetime
if deadline > 0 then lifetime = lifetime + IN_USE + (lifetime < MOST_IN_USE and lifetime or MOST_IN_USE) end
