-- window_units: the units of the state that count in a window.
--
-- In   held: the units of the state; own: the start of its window, or nil; start; limit
-- Out  held
if start ~= own then
  held = 0
elseif held > limit then
  held = limit
end
