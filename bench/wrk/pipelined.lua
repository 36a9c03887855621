-- Sixteen requests in each write, as `forebay load -p 16`.
init = function()
  local requests = {}
  for place = 1, 16 do
    requests[place] = wrk.format()
  end
  batch = table.concat(requests)
end

request = function()
  return batch
end
