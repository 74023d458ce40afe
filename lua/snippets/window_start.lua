-- window_start: the window that contains a time.
--
-- In   stamp: the time; grid: see fixed_window.lua; own: the start of the window of the state, or nil
-- Out  start, finish
start = stamp
if grid > 0 then
  start = stamp - stamp % grid
  finish = start + grid
else
  if own and own <= stamp and stamp - own < -grid then start = own end
  finish = start - grid
end
