# A sign-in with Rails' ActionPack, which responds with the name that it reads. It logs nothing, since malformed requests are part of
# the tests.
#
#     rails.rb PORT

require "action_controller"
require "rack"
require "webrick"
# The handlers of servers are a library of their own from Rack 3 on.
begin
  require "rackup/handler/webrick"
  WEBRICK = Rackup::Handler::WEBrick
rescue LoadError
  WEBRICK = Rack::Handler::WEBrick
end

class SignInController < ActionController::API
  def create
    render json: { username: params[:username] }
  end
end

ROUTES = ActionDispatch::Routing::RouteSet.new
ROUTES.draw { post "/", to: "sign_in#create" }

APP = lambda do |request|
  ROUTES.call(request)
rescue StandardError
  [400, {}, []]
end

WEBRICK.run(APP, Host: "127.0.0.1", Port: ARGV.fetch(0).to_i, AccessLog: [],
                 Logger: WEBrick::Log.new(File::NULL))
