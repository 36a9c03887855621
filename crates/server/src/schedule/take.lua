-- Takes the turn of a job.
-- KEYS  1 lease · 2 rest
-- ARGV  1 epoch, not looked at · 2 token · 3 lifetime of the lease · 4 time from turn to turn, both in milliseconds
-- Answers 0 when it is ours, else the milliseconds until somebody may have it. One that was taken by a call whose answer was lost is ours.
if redis.call('GET', KEYS[1]) ~= ARGV[2] then
  local wait = 0
  for i = 1, 2 do
    local left, most = redis.call('PTTL', KEYS[i]), tonumber(ARGV[2 + i])
    -- Neither is taken for longer: this one was, by a clock that was ahead of this server's.
    if left > most then
      left = most
      redis.call('PEXPIRE', KEYS[i], most)
    end
    wait = math.max(wait, left)
  end
  if wait > 0 then return wait end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('SET', KEYS[2], '1', 'PX', ARGV[4])
return 0
