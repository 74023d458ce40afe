-- constants: used by several scripts. See take.lua for the kinds of charges.

-- The kind of a charge that takes units if they are available.
local TAKE = 0
-- The kind of a charge that is decided without taking units.
local CHECK = 1
-- The kind of a refund: another charge was denied, or the final status does not count.
local REFUND = 5
-- The kind of a late charge, made while the store was unavailable.
local LATE = 6
-- The kind of a charge that takes units, reports a grant and asks for one.
local GRANT = 7

-- How far a timestamp may be ahead of the clock, in µs, before it means that the clock was set back.
local SET_BACK = 1000000

-- How much longer than needed Redis keeps the debt of a key that is in use, so that its next states can be overwritten in
-- place, in µs: the first, and once more its lifetime, but of that at most the second.
local IN_USE, MOST_IN_USE = 1000000, 60000000

-- How many arguments of take.lua precede its policies.
local BEFORE_POLICIES = 3

-- The last time that a state can hold.
local FOREVER = 2 ^ 53

-- The letters of the policies that are decided without functions, in lower case.
local TOKEN_BUCKET, GCRA, FIXED_WINDOW = 98, 103, 119
-- How much less an upper-case letter is: that of a policy that grants units, which has the option 4; and the letter of a policy
-- with reservations, whose records begin with "<d" when their state was created, in µs.
local UPPER_CASE, GRANTS, WITH_CREATION = 32, 4, 1
-- Bytes of a policy without numbers, and of a request of one charge without extra bytes.
local POLICY, ONE_CHARGE = 3, 17
