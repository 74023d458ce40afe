-- debt_policy: reads the policy of a token bucket or a GCRA. The numbers of the algorithm are the last ones.
--
-- In   policy; now
-- Out  drain, unit, limit: limit is nil if the policy is another one, or has a ban; creates: now if the states have the time of
--      their creation (`charge_on`), or nil; letter, options
if #policy >= POLICY + 24 then
  letter, options, _, drain, unit, limit = unpack_struct("<BBBddd", policy)
  if options >= GRANTS then
    letter = letter + UPPER_CASE
    drain, unit, limit = unpack_struct("<ddd", policy, #policy - 23)
  end
  if letter ~= TOKEN_BUCKET and letter ~= GCRA then
    if letter == TOKEN_BUCKET - WITH_CREATION or letter == GCRA - WITH_CREATION then creates = now else limit = nil end
  end
  if options ~= 0 and options % 2 == 1 then limit = nil end
end
