-- kind: what a charge of a kind other than take and check means to the algorithm.
--
-- In   letter: of the algorithm; kind, cost, holder: of the charge
-- Out  kind, cost, holder: those of the algorithm
if kind == REFUND then
  if letter == "c" then kind = RELEASE end
elseif kind == EXTRA then
  -- Charged as if it were late and taken now. Queues and slots have no units that are charged without asking.
  if letter == "c" or letter == "q" then cost = 0 end
  kind, holder = LATE, FOREVER
elseif (kind == LATE) == (letter == "c") then
  -- A renewal restores lost slots, so slots are not charged late; other algorithms have nothing to release or renew.
  cost = 0
end
