-- count_denial: counts a denial; the last one of the threshold starts the ban.
--
-- In   ban: of the policy; penalty: at the present time, changed
if penalty.denials > 0 and penalty.stamp < penalty.opened + ban.within then
  penalty.denials = penalty.denials + 1
else
  penalty.denials, penalty.opened = 1, penalty.stamp
end
if penalty.denials >= ban.after then
  penalty.denials, penalty.opened, penalty.banned = 0, 0, math.min(penalty.stamp + ban.length, FOREVER)
end
