-- Reserves values again for rows that have them, while nothing else may.
-- KEYS  1 lock · 2 reservations
-- ARGV  1 epoch, not looked at · 2 token of the lock · then fingerprint, key of each
-- Answers 1, or 0 when the lock is not held any more.
if redis.call('GET', KEYS[1]) ~= ARGV[2] then return 0 end
for i = 3, #ARGV, 2 do
  local holder = redis.call('HGET', KEYS[2], ARGV[i])
  -- No two rows have the value: one that another row is named for is left over.
  if not holder or string.sub(holder, 9) ~= ARGV[i + 1] then
    redis.call('HSET', KEYS[2], ARGV[i], struct.pack('<I8', 0) .. ARGV[i + 1])
  end
end
return 1
